define internal <{n} x double> @plica.turn.{part}.v{n}(<{n} x i32> %place) alwaysinline {{
  %at = getelementptr inbounds double, ptr @plica.turns.{part}, <{n} x i32> %place
  %r = call <{n} x double> @llvm.masked.gather.v{n}f64.v{n}p0(<{n} x ptr> align 8 %at, <{n} x i1> splat (i1 true), <{n} x double> poison)
  ret <{n} x double> %r
}}
