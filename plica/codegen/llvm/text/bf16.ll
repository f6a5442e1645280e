define internal float @plica.round.bf16(float %x) alwaysinline {
  %bits = bitcast float %x to i32
  %high = lshr i32 %bits, 16
  %odd = and i32 %high, 1
  %half = add i32 %odd, 32767
  %sum = add i32 %bits, %half
  %cut = and i32 %sum, -65536
  %near = bitcast i32 %cut to float
  %nan = fcmp uno float %x, 0.0
  %r = select i1 %nan, float %x, float %near
  ret float %r
}
define internal i16 @plica.pack.bf16(float %x) alwaysinline {
  %bits = bitcast float %x to i32
  %high = lshr i32 %bits, 16
  %nan = fcmp uno float %x, 0.0
  %quiet = or i32 %high, 64
  %kept = select i1 %nan, i32 %quiet, i32 %high
  %r = trunc i32 %kept to i16
  ret i16 %r
}
define internal float @plica.unpack.bf16(i16 %x) alwaysinline {
  %wide = zext i16 %x to i32
  %bits = shl i32 %wide, 16
  %r = bitcast i32 %bits to float
  ret float %r
}
