define internal <{n} x double> @plica.turn.{part}.v{n}(<{n} x i32> %place) alwaysinline {{
entry:
  %far = icmp ne <{n} x i32> %place, zeroinitializer
  %any = call i1 @llvm.vector.reduce.or.v{n}i1(<{n} x i1> %far)
  br i1 %any, label %table, label %done
table:
  %at = getelementptr inbounds double, ptr @plica.turns.{part}, <{n} x i32> %place
  %r = call <{n} x double> @llvm.masked.gather.v{n}f64.v{n}p0(<{n} x ptr> align 8 %at, <{n} x i1> splat (i1 true), <{n} x double> poison)
  br label %done
done:
  %turn = phi <{n} x double> [ splat (double {first}), %entry ], [ %r, %table ]
  ret <{n} x double> %turn
}}
