//! The program. All of it is in the library of this package.

fn main() -> std::process::ExitCode {
    seriatim_server::main()
}
