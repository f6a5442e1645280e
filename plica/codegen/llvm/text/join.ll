define internal float @plica.{name}.f32(float %x) alwaysinline {{
entry:
  %near = call float @plica.{name}.near.f32(float %x)
  %size = call float @llvm.fabs.f32(float %x)
  %far = fcmp ugt float %size, {most}
  br i1 %far, label %large, label %done
large:
  %r = call float @plica.{name}.far.f32(float %x)
  br label %done
done:
  %y = phi float [ %near, %entry ], [ %r, %large ]
  ret float %y
}}
