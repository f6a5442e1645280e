define internal i{w} @plica.pack.{n}(float %x) alwaysinline {{
  %whole = bitcast float %x to i32
  %top = lshr i32 %whole, {down}
  %sign = and i32 %top, {c.sign}
  %size = call float @llvm.fabs.f32(float %x)
  %bits = bitcast float %size to i32
  %low = lshr i32 %bits, {c.cut}
  %odd = and i32 %low, 1
  %half = add i32 %odd, {half}
  %sum = add i32 %bits, %half
  %kept = lshr i32 %sum, {c.cut}
  %normal = sub i32 %kept, {rebias}
  %moved = fadd float %size, {magic}
  %counted = bitcast float %moved to i32
  %small = sub i32 %counted, {c.magic_bits}
  %tiny = icmp ult i32 %bits, {c.normal}
  %a = select i1 %tiny, i32 %small, i32 %normal
  %big = icmp ugt i32 %a, {c.greatest}
  %b = select i1 %big, i32 {c.overflow}, i32 %a
  %nan = fcmp uno float %x, 0.0
  %c = select i1 %nan, i32 {c.nan}, i32 %b
  {signed}
  %r = trunc i32 %d to i{w}
  ret i{w} %r
}}
define internal float @plica.unpack.{n}(i{w} %x) alwaysinline {{
  %wide = zext i{w} %x to i32
  %sign = and i32 %wide, {c.sign}
  %size = and i32 %wide, {size}
  %moved = shl i32 %size, {c.cut}
  %normal = add i32 %moved, {c.rebias}
  %near = bitcast i32 %normal to float
  %count = uitofp i32 %size to float
  %small = fmul float %count, {step}
  %infinite = or i32 %moved, 2139095040
  %far = bitcast i32 %infinite to float
  %tiny = icmp ult i32 %size, {least}
  %big = icmp ugt i32 %size, {c.greatest}
  %a = select i1 %tiny, float %small, float %near
  %b = select i1 %big, float %far, float %a
  %bits = bitcast float %b to i32
  %top = shl i32 %sign, {down}
  {whole}
  %r = bitcast i32 %all to float
  ret float %r
}}
define internal float @plica.round.{n}(float %x) alwaysinline {{
  %code = call i{w} @plica.pack.{n}(float %x)
  %r = call float @plica.unpack.{n}(i{w} %code)
  ret float %r
}}
