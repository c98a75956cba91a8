//! Keys go to the gateway that they belong to, and to no other.

use std::{
    io::Read as _,
    net::TcpListener,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use crate::installation::{Installation, signal};

/// A listener that records each byte that it is sent, as another program at a gateway's address.
struct Recorder {
    url: String,
    bytes: Arc<Mutex<Vec<u8>>>,
    is_stopped: Arc<AtomicBool>,
}

impl Recorder {
    fn listen(address: &str) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let is_stopped = Arc::new(AtomicBool::new(false));
        let (received, stopped) = (Arc::clone(&bytes), Arc::clone(&is_stopped));
        thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
                let mut buffer = [0; 4096];
                while let Ok(length @ 1..) = stream.read(&mut buffer) {
                    received.lock().unwrap().extend_from_slice(&buffer[..length]);
                }
            }
        });
        Self { url, bytes, is_stopped }
    }

    fn received(&self) -> usize {
        self.bytes.lock().unwrap().len()
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        drop(std::net::TcpStream::connect(self.url.trim_start_matches("http://")));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_whose_mesh_is_down_sends_no_byte_to_another() -> anyhow::Result<()> {
    let installation = Installation::new().await?;
    installation.run(&["up", "--detach", "--port-base", "0"]).ok();
    let address = installation.state()["gateway"]["grpc"].as_str().unwrap().to_owned();
    installation.run(&["status"]).ok();

    // The address of another gateway, with the folder's mesh running.
    let other = Recorder::listen("127.0.0.1:0");
    let told = installation.run(&["status", "--gateway", &other.url]).exits_with(2);
    assert!(told.err.contains(&address) && told.err.contains("--key"), "{}", told.err);
    // The folder's own HTTP port.
    let http = installation.state()["gateway"]["http"].as_str().unwrap().to_owned();
    let told = installation.run(&["status", "--gateway", &http]).exits_with(2);
    assert!(told.err.contains("HTTP port") && told.err.contains(&address), "{}", told.err);
    // The same with a key that was given, which the gateway itself answers.
    let key = installation.state()["key"].as_str().unwrap().to_owned();
    let told = installation.run(&["status", "--gateway", &http, "--key", &key]);
    let port = address.rsplit_once(':').unwrap().1;
    assert!(told.err.contains("HTTP port") && told.err.contains(port), "{}", told.err);

    // The mesh is killed, so that its files remain; another program takes its port. If the default
    // port is free here, a program listens there too.
    signal("KILL", installation.pid("up").unwrap());
    let taken = eventually_listen(address.trim_start_matches("http://"));
    let default = TcpListener::bind("127.0.0.1:18790").is_ok();
    let default = default.then(|| Recorder::listen("127.0.0.1:18790"));
    std::fs::write(installation.root.join("token"), "hfn_1_2")?;
    let token = installation.root.join("token").display().to_string();
    let lines: [&[&str]; 5] = [
        &["status"],
        &["chat", "hello"],
        &["status", "--key", "hf_1_2"],
        &["status", "--gateway", &address],
        &["node", "run", "--token-file", &token, "--allow", "ls"],
    ];
    for line in lines {
        let told = installation.run(line).exits_with(5);
        let folder = installation.dir.display().to_string();
        for part in [&folder, &address, "`make up`", "--gateway"] {
            assert!(told.err.contains(part), "`{}`: `{part}` is missing: {}", told.line, told.err);
        }
    }
    // As found from a folder below, by the name of the directory.
    let below = installation.root.join("below");
    std::fs::create_dir(&below)?;
    let mut found = std::process::Command::new(crate::installation::HOLDFAST);
    installation.isolate(found.arg("status").current_dir(&below));
    assert_eq!(found.output()?.status.code(), Some(5));

    thread::sleep(Duration::from_millis(200));
    for recorder in [Some(&other), Some(&taken), default.as_ref()].into_iter().flatten() {
        assert_eq!(recorder.received(), 0, "{} was sent something", recorder.url);
    }
    // What was named, with a key that was named, is called.
    installation.run(&["status", "--gateway", &other.url, "--key", "hf_1_2"]);
    assert!(other.received() > 0, "the listener records nothing");
    Ok(())
}

/// Listens at an address that its former owner is about to leave.
fn eventually_listen(address: &str) -> Recorder {
    crate::installation::eventually("the port", || TcpListener::bind(address).ok().map(drop));
    Recorder::listen(address)
}
