define internal <{n} x float> @plica.{name}.f32.v{n}(<{n} x float> %x) alwaysinline {{
entry:
  %near = call <{n} x float> @plica.{name}.near.f32.v{n}(<{n} x float> %x)
  %size = call <{n} x float> @llvm.fabs.v{n}f32(<{n} x float> %x)
  %far = fcmp ugt <{n} x float> %size, splat (float {most})
  %any = call i1 @llvm.vector.reduce.or.v{n}i1(<{n} x i1> %far)
  br i1 %any, label %large, label %done
large:
  %r = call <{n} x float> @plica.{name}.far.f32.v{n}(<{n} x float> %x)
  %both = select <{n} x i1> %far, <{n} x float> %r, <{n} x float> %near
  br label %done
done:
  %y = phi <{n} x float> [ %near, %entry ], [ %both, %large ]
  ret <{n} x float> %y
}}
