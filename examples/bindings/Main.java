// The model `words` from Java: one row of numbers in, twelve scores out.
public final class Main {
  public static void main(String[] args) {
    float[] x = new float[36];
    for (int i = 0; i < 36; i++) x[i] = (i % 7) / 7.0f;
    float[] scores = new float[12];
    Words.run(x, scores);
    double sum = 0;
    for (float each : scores) sum += each;
    System.out.printf(java.util.Locale.ROOT, "%.6f%n", sum);
    try {
      Words.run(new float[35], scores);
    } catch (IllegalArgumentException expected) {
      return;
    }
    System.exit(1);
  }
}
