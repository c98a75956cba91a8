//! Generates the client from the protos, without `protoc`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let protos = "../../../proto";
    let files = protox::compile(["holdfast/gateway/v1/messages.proto"], [protos])?;
    tonic_prost_build::configure().build_server(false).compile_fds(files)?;
    println!("cargo::rerun-if-changed={protos}");
    Ok(())
}
