define internal float @plica.near.bf16(float %x) alwaysinline {
  %bits = bitcast float %x to i32
  %high = lshr i32 %bits, 16
  %odd = and i32 %high, 1
  %half = add i32 %odd, 32767
  %sum = add i32 %bits, %half
  %cut = and i32 %sum, -65536
  %r = bitcast i32 %cut to float
  ret float %r
}
define internal float @plica.round.bf16(float %x) alwaysinline {
  %bits = bitcast float %x to i32
  %high = lshr i32 %bits, 16
  %odd = and i32 %high, 1
  %half = add i32 %odd, 32767
  %sum = add i32 %bits, %half
  %nan = fcmp uno float %x, 0.0
  %near = select i1 %nan, i32 2143289344, i32 %sum
  %cut = and i32 %near, -65536
  %r = bitcast i32 %cut to float
  ret float %r
}
define internal i16 @plica.pack.bf16(float %x) alwaysinline {
  %bits = bitcast float %x to i32
  %high = lshr i32 %bits, 16
  %r = trunc i32 %high to i16
  ret i16 %r
}
define internal float @plica.unpack.bf16(i16 %x) alwaysinline {
  %wide = zext i16 %x to i32
  %bits = shl i32 %wide, 16
  %r = bitcast i32 %bits to float
  ret float %r
}
