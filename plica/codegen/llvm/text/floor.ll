define internal {t} @plica.floormod.{s}({t} %a, {t} %b) alwaysinline {{
  %m = {rest}
  %moved = fadd {t} %m, %b
  %none = fcmp oeq {t} %m, 0.0
  %m.neg = fcmp olt {t} %m, 0.0
  %b.neg = fcmp olt {t} %b, 0.0
  %differ = xor i1 %m.neg, %b.neg
  %zero = call {t} @llvm.copysign.{s}({t} 0.0, {t} %b)
  %x = select i1 %differ, {t} %moved, {t} %m
  %y = select i1 %none, {t} %zero, {t} %x
  %by.zero = fcmp oeq {t} %b, 0.0
  %r = select i1 %by.zero, {t} %m, {t} %y
  ret {t} %r
}}
define internal {t} @plica.floordiv.{s}({t} %a, {t} %b) alwaysinline {{
  %plain = fdiv {t} %a, %b
  %m = {rest}
  %rest = fsub {t} %a, %m
  %d = fdiv {t} %rest, %b
  %some = fcmp une {t} %m, 0.0
  %m.neg = fcmp olt {t} %m, 0.0
  %b.neg = fcmp olt {t} %b, 0.0
  %differ = xor i1 %m.neg, %b.neg
  %down = and i1 %some, %differ
  %less = fsub {t} %d, 1.0
  %q = select i1 %down, {t} %less, {t} %d
  %floor = call {t} @llvm.floor.{s}({t} %q)
  %gap = fsub {t} %q, %floor
  %far = fcmp ogt {t} %gap, 0.5
  %up = fadd {t} %floor, 1.0
  %near = select i1 %far, {t} %up, {t} %floor
  %zero = call {t} @llvm.copysign.{s}({t} 0.0, {t} %plain)
  %none = fcmp oeq {t} %q, 0.0
  %x = select i1 %none, {t} %zero, {t} %near
  %by.zero = fcmp oeq {t} %b, 0.0
  %r = select i1 %by.zero, {t} %plain, {t} %x
  ret {t} %r
}}
