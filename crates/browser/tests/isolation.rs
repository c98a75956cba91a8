//! A browser that is started here sees neither the files nor the network of its host.

/// Tests that `tests/tools.py` leaves out where Chromium is missing.
mod needs_chromium {
    use std::{
        collections::HashMap,
        fs,
        net::{SocketAddr, TcpListener, UdpSocket},
        path::{Path, PathBuf},
        sync::Arc,
        time::Duration,
    };

    use anyhow::Context as _;
    use axum::{Router, response::Html, routing::get};
    use holdfast_browser::{Browser, Config, Isolation, Page};
    use holdfast_proxy::{ConnectRules, RuleDecision};
    use uuid::Uuid;

    /// Allows one name, which is on this machine.
    #[derive(Debug)]
    struct OnlyStart;

    impl ConnectRules for OnlyStart {
        fn check(&self, host: String, port: u16) -> RuleDecision {
            Box::pin(async move {
                match host.as_str() {
                    "start.test" => Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))]),
                    _ => Err(format!("`{host}` is refused")),
                }
            })
        }
    }

    fn config() -> Config {
        let path = std::env::var_os("HOLDFAST_CHROMIUM").map(PathBuf::from);
        Config {
            path: Some(path.unwrap_or_else(|| "/usr/bin/chromium".into())),
            // Tests may run as root, where Chromium's own sandbox does not work.
            args: vec!["--no-sandbox".to_owned()],
            listener_program: Some(env!("CARGO_BIN_EXE_holdfast-browser-listener").into()),
            ..Config::default()
        }
    }

    async fn window(config: Config) -> anyhow::Result<(Browser, Page)> {
        let browser = Browser::new(config, Arc::new(OnlyStart));
        let (page, _) = browser.page(Uuid::from_u128(1), Uuid::from_u128(2)).await?;
        Ok((browser, page))
    }

    /// Address of a page that the browser may load.
    async fn start_page() -> anyhow::Result<String> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://start.test:{}/", listener.local_addr()?.port());
        let routes = Router::new().route("/", get(|| async { Html("<h1>Welcome</h1>") }));
        tokio::spawn(async move { axum::serve(listener, routes).await });
        Ok(url)
    }

    /// Processes of browsers that this process started, with their interfaces.
    fn interfaces() -> anyhow::Result<Vec<(String, Vec<String>)>> {
        let mut parents = HashMap::new();
        for entry in fs::read_dir("/proc")?.flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok())
            else {
                continue;
            };
            // A process may end meanwhile.
            let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
            let fields = stat.rsplit_once(") ").context("a process has a name")?.1;
            let parent = fields.split(' ').nth(1).context("a process has a parent")?;
            parents.insert(pid, parent.parse::<u32>()?);
        }
        let is_ours = |pid: u32| {
            std::iter::successors(Some(pid), |pid| parents.get(pid).copied())
                .skip(1)
                .any(|ancestor| ancestor == std::process::id())
        };
        let mut found = Vec::new();
        for pid in parents.keys().copied().filter(|pid| is_ours(*pid)) {
            let process = Path::new("/proc").join(pid.to_string());
            let Ok(program) = fs::read_to_string(process.join("comm")) else { continue };
            let Ok(devices) = fs::read_to_string(process.join("net/dev")) else { continue };
            let names = devices.lines().filter_map(|line| line.split_once(':'));
            let names = names.map(|(name, _)| name.trim().to_owned()).collect();
            // The first `bwrap` is outside of the namespace that it makes.
            if program.trim() != "bwrap" {
                found.push((program.trim().to_owned(), names));
            }
        }
        Ok(found)
    }

    #[tokio::test]
    async fn a_browser_cannot_read_the_files_of_its_host() -> anyhow::Result<()> {
        let dir = tempfile::tempdir()?;
        let secret = dir.path().join("secret.txt");
        fs::write(&secret, "the key of the house")?;
        let url = format!("file://{}", secret.display());
        let text = async |config| {
            let (_browser, page) = window(config).await?;
            // A file that is missing is an error of the navigation.
            drop(page.navigate(&url, None).await);
            page.wait_until_loaded().await?;
            page.evaluate("document.body?.innerText ?? ''").await.map_err(anyhow::Error::from)
        };

        let isolated = text(config()).await?.to_string();
        assert!(!isolated.contains("the key of the house"), "{isolated}");

        let open = text(Config { isolation: Isolation::None, ..config() }).await?.to_string();
        assert!(open.contains("the key of the house"), "the test itself works: {open}");
        Ok(())
    }

    #[tokio::test]
    async fn a_browser_has_no_network_but_the_proxy() -> anyhow::Result<()> {
        let start = start_page().await?;
        let tcp = TcpListener::bind("127.0.0.1:0")?;
        let udp = UdpSocket::bind("127.0.0.1:0")?;
        tcp.set_nonblocking(true)?;
        udp.set_nonblocking(true)?;
        let (tcp_port, udp_port) = (tcp.local_addr()?.port(), udp.local_addr()?.port());

        let (_browser, page) = window(config()).await?;
        page.navigate(&start, None).await?;
        assert_eq!(page.evaluate("document.body.innerText").await?, "Welcome");

        let fetch = "{ mode: 'no-cors' }).then(() => 'answered', () => 'failed')";
        page.evaluate(&format!("fetch('http://127.0.0.1:{tcp_port}/', {fetch}")).await?;
        page.navigate(&format!("http://127.0.0.1:{tcp_port}/"), None).await?;
        let shown = page.evaluate("document.body.innerText").await?;
        assert_eq!(shown, "`127.0.0.1` is refused");

        page.navigate(&start, None).await?;
        let candidates = page
            .evaluate(&format!(
                "new Promise(done => {{
                   const found = [];
                   const peer = new RTCPeerConnection({{
                     iceServers: [{{ urls: 'stun:127.0.0.1:{udp_port}' }}] }});
                   peer.onicecandidate = it => it.candidate && found.push(it.candidate.candidate);
                   peer.createDataChannel('x');
                   peer.createOffer().then(it => peer.setLocalDescription(it));
                   setTimeout(() => done(found.join()), 3000);
                 }})"
            ))
            .await?;
        assert_eq!(candidates, "", "no address of the host is known to the page");
        assert!(udp.recv(&mut [0; 8]).is_err(), "no packet left the namespace");
        assert!(tcp.accept().is_err(), "no connection left the namespace");
        Ok(())
    }

    #[tokio::test]
    async fn no_process_of_a_browser_has_another_interface_than_loopback() -> anyhow::Result<()> {
        let (_browser, _page) = window(config()).await?;

        tokio::time::sleep(Duration::from_millis(300)).await;
        let processes = interfaces()?;

        assert!(processes.len() > 2, "a browser has several processes: {processes:?}");
        for (program, names) in processes {
            assert_eq!(names, ["lo"], "{program}");
        }
        Ok(())
    }
}
