//! IRC with a real server: ngircd, with a client of its own beside the bridge.

mod needs_ngircd {
    use std::{path::PathBuf, process::Stdio, time::Duration};

    use serde_json::json;
    use tokio::{
        io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
        net::{
            TcpListener, TcpStream,
            tcp::{OwnedReadHalf, OwnedWriteHalf},
        },
        process::{Child, Command},
        time::timeout,
    };

    use crate::world::{World, eventually, target};

    /// A server, which ends when it is dropped.
    struct Ngircd {
        port: u16,
        config: PathBuf,
        _process: Child,
    }

    impl Ngircd {
        async fn start() -> Self {
            let port = {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                listener.local_addr().unwrap().port()
            };
            let config = std::env::temp_dir().join(format!("holdfast-ngircd-{port}.conf"));
            let text = format!(
                "[Global]\nName = irc.test\nInfo = test\nListen = 127.0.0.1\nPorts = {port}\n\
                 MotdPhrase = hello\nServerUID = nobody\nServerGID = nogroup\n\
                 [Limits]\nMaxConnectionsIP = 0\n[Options]\nPAM = no\nDNS = no\nIdent = no\n"
            );
            std::fs::write(&config, text).unwrap();
            let process = Self::run(&config);
            let server = Self { port, config, _process: process };
            server.answers().await;
            server
        }

        fn run(config: &PathBuf) -> Child {
            let mut command = Command::new("/usr/sbin/ngircd");
            command.arg("-n").arg("-f").arg(config).kill_on_drop(true);
            command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
        }

        async fn answers(&self) {
            eventually("ngircd listens", async || {
                TcpStream::connect(("127.0.0.1", self.port)).await.is_ok()
            })
            .await;
        }

        async fn restart(self) -> Self {
            let (port, config) = (self.port, self.config.clone());
            let Self { _process: mut process, .. } = self;
            process.kill().await.unwrap();
            let server = Self { port, _process: Self::run(&config), config };
            server.answers().await;
            server
        }
    }

    /// A person's client.
    struct Client {
        lines: Lines<BufReader<OwnedReadHalf>>,
        write: OwnedWriteHalf,
    }

    impl Client {
        async fn connect(port: u16, nick: &str) -> Self {
            let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            let (read, write) = stream.into_split();
            let mut client = Self { lines: BufReader::new(read).lines(), write };
            client.write(&format!("NICK {nick}")).await;
            client.write("USER person 0 * :Person").await;
            client.wait_for(" 001 ").await;
            client
        }

        async fn write(&mut self, line: &str) {
            self.write.write_all(format!("{line}\r\n").as_bytes()).await.unwrap();
        }

        /// Reads until a line contains this text, and returns the line.
        async fn wait_for(&mut self, text: &str) -> String {
            let found = async {
                loop {
                    let line = self.lines.next_line().await.unwrap().unwrap();
                    if let Some(token) = line.strip_prefix("PING ") {
                        let answer = format!("PONG {token}");
                        self.write(&answer).await;
                    }
                    if line.contains(text) {
                        return line;
                    }
                }
            };
            let found = timeout(Duration::from_secs(60), found).await;
            assert!(found.is_ok(), "no {text}");
            found.unwrap()
        }
    }

    async fn served(port: u16) -> (World, holdfast_directory::Account) {
        let world = World::new().await;
        let settings = json!({"server": "127.0.0.1", "port": port, "tls": false, "nick": "helper",
            "channels": ["#team"], "identify_by": "nick", "allow": ["anna"]});
        let account = world.account("irc", settings, json!({})).await;
        (world, account)
    }

    #[tokio::test]
    async fn people_on_a_real_server_are_heard_and_answered_in_full() {
        let server = Ngircd::start().await;
        let (world, account) = served(server.port).await;
        let bridge = world.bridge().await;
        let mut anna = Client::connect(server.port, "anna").await;
        anna.write("JOIN #team").await;
        anna.wait_for("366").await;
        eventually("the assistant has joined", async || {
            let statuses = world.directory.accounts().statuses(world.tenant).await.unwrap();
            statuses.iter().any(|status| status.detail == "signed in to 127.0.0.1 as helper")
        })
        .await;

        anna.write("PRIVMSG helper :hello there").await;
        anna.write("PRIVMSG #team :helper: and here?").await;
        anna.write("PRIVMSG #team :just talking").await;
        world.taken(3).await;
        let words = "word ".repeat(300);
        let long = format!("```\n{}```\n{words}", "let x = 1;\n".repeat(20));
        let id = world.reply("irc", account.id, "anna", &long).await;

        let (mut fences, mut lines, mut heard) = (0, 0, 0);
        while heard < 300 {
            let line = anna.wait_for("PRIVMSG anna :").await;
            let (_, text) = line.split_once("PRIVMSG anna :").unwrap();
            fences += text.matches("```").count();
            lines += text.matches("let x = 1;").count();
            heard += text.matches("word").count();
        }
        world.delivered(id, "sent").await;
        assert_eq!((lines, heard, fences % 2), (20, 300, 0));
        let taken = world.gateway.taken();
        assert_eq!(world.gateway.texts(), ["hello there", "and here?", "just talking"]);
        assert_eq!((taken[0].peer_kind.as_str(), taken[0].sender_id.as_str()), ("direct", "anna"));
        assert!(!taken[1].silent && taken[2].silent);
        bridge.stop().await;
    }

    #[tokio::test]
    async fn a_server_that_restarts_is_joined_again_and_nobody_is_told_as_such() {
        let server = Ngircd::start().await;
        let (world, account) = served(server.port).await;
        let bridge = world.bridge().await;
        let missing = world.reply("irc", account.id, "nobody", "hi").await;
        let dead = world.delivered(missing, "dead").await;
        assert!(dead.reason.unwrap().contains("No such nick"));

        let server = server.restart().await;
        let mut anna = Client::connect(server.port, "anna").await;
        eventually("the assistant is heard again", async || {
            let id = world.reply_to(target("irc", account.id, "anna"), "back").await;
            world.delivered(id, "sent").await;
            true
        })
        .await;
        anna.wait_for("PRIVMSG anna :back").await;
        bridge.stop().await;
    }
}
