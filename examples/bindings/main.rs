// The model `words` from Rust: one row of numbers in, twelve scores out.
mod words;

fn main() {
    let mut x = [0f32; 36];
    for (i, each) in x.iter_mut().enumerate() {
        *each = (i % 7) as f32 / 7.0;
    }
    let found = words::Words.run(&x).expect("the model runs");
    let sum: f64 = found.out_output.iter().map(|&each| each as f64).sum();
    println!("{sum:.6}");
}
