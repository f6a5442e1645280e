define internal double @plica.turn.{part}(i32 %place) alwaysinline {{
  %at = getelementptr inbounds double, ptr @plica.turns.{part}, i32 %place
  %r = load double, ptr %at, align 8
  ret double %r
}}
