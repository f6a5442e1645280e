define internal float @plica.odd(double %x) alwaysinline {
  %f = fptrunc double %x to float
  %back = fpext float %f to double
  %size = call double @llvm.fabs.f64(double %x)
  %other = call double @llvm.fabs.f64(double %back)
  %over = fcmp ogt double %other, %size
  %inexact = fcmp one double %back, %x
  %bits = bitcast float %f to i32
  %less = sub i32 %bits, 1
  %down = select i1 %over, i32 %less, i32 %bits
  %odd = or i32 %down, 1
  %kept = select i1 %inexact, i32 %odd, i32 %down
  %r = bitcast i32 %kept to float
  ret float %r
}
