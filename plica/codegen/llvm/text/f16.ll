define internal float @plica.round.f16(float %x) alwaysinline {
  %h = fptrunc float %x to half
  %r = fpext half %h to float
  ret float %r
}
define internal i16 @plica.pack.f16(float %x) alwaysinline {
  %h = fptrunc float %x to half
  %r = bitcast half %h to i16
  ret i16 %r
}
define internal float @plica.unpack.f16(i16 %x) alwaysinline {
  %h = bitcast i16 %x to half
  %r = fpext half %h to float
  ret float %r
}
