define internal float @plica.round.f16(float %x) alwaysinline {
  %size = call float @llvm.fabs.f32(float %x)
  %bits = bitcast float %size to i32
  %low = lshr i32 %bits, 13
  %odd = and i32 %low, 1
  %half = add i32 %odd, 4095
  %sum = add i32 %bits, %half
  %cut = and i32 %sum, -8192
  %near = bitcast i32 %cut to float
  %moved = fadd float %size, 5.0e-1
  %small = fsub float %moved, 5.0e-1
  %tiny = fcmp olt float %size, 0x3F10000000000000
  %big = fcmp oge float %size, 65520.0
  %nan = fcmp uno float %x, 0.0
  %a = select i1 %tiny, float %small, float %near
  %b = select i1 %big, float 0x7FF0000000000000, float %a
  %c = select i1 %nan, float %x, float %b
  %r = call float @llvm.copysign.f32(float %c, float %x)
  ret float %r
}
define internal i16 @plica.pack.f16(float %given) alwaysinline {
  %x = call float @plica.round.f16(float %given)
  %whole = bitcast float %x to i32
  %top = lshr i32 %whole, 16
  %sign = and i32 %top, 32768
  %size = call float @llvm.fabs.f32(float %x)
  %bits = bitcast float %size to i32
  %shifted = lshr i32 %bits, 13
  %normal = sub i32 %shifted, 114688
  %scaled = fmul float %size, 0x4170000000000000
  %steps = call i32 @llvm.fptosi.sat.i32.f32(float %scaled)
  %tiny = fcmp olt float %size, 0x3F10000000000000
  %inf = fcmp oge float %size, 65536.0
  %nan = fcmp uno float %x, 0.0
  %a = select i1 %tiny, i32 %steps, i32 %normal
  %b = select i1 %inf, i32 31744, i32 %a
  %c = select i1 %nan, i32 32256, i32 %b
  %d = or i32 %c, %sign
  %r = trunc i32 %d to i16
  ret i16 %r
}
define internal float @plica.unpack.f16(i16 %x) alwaysinline {
  %wide = zext i16 %x to i32
  %sign = and i32 %wide, 32768
  %size = and i32 %wide, 32767
  %moved = shl i32 %size, 13
  %normal = add i32 %moved, 939524096
  %near = bitcast i32 %normal to float
  %count = uitofp i32 %size to float
  %small = fmul float %count, 0x3E70000000000000
  %infinite = or i32 %moved, 2139095040
  %far = bitcast i32 %infinite to float
  %tiny = icmp ult i32 %size, 1024
  %big = icmp uge i32 %size, 31744
  %a = select i1 %tiny, float %small, float %near
  %b = select i1 %big, float %far, float %a
  %bits = bitcast float %b to i32
  %top = shl i32 %sign, 16
  %whole = or i32 %bits, %top
  %r = bitcast i32 %whole to float
  ret float %r
}
