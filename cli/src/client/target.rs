//! The gateway that a command calls, and the key that belongs to it.
//!
//! | address from | key of `.holdfast/dev.key` |
//! |---|---|
//! | `--gateway` | sent if it is the address of the running mesh of that folder, or if the folder was set up by `bootstrap` alone and names no gateway |
//! | the running mesh of the folder | sent |
//! | the default, where no folder has a mesh | never sent |
//!
//! A folder whose mesh is down stops the command: another mesh may listen at any other address.

use std::{fs, net::IpAddr, path::Path};

use tonic::metadata::{Ascii, MetadataValue};

use crate::{
    client::program,
    error::Error,
    global::Global,
    state_dir::{self, State, StateDir},
    tokens::bearer,
};

/// Address of a gateway where no folder has a mesh.
pub const DEFAULT_URL: &str = "http://127.0.0.1:18790";

/// Mesh of a folder, as the folder's files say.
#[derive(Debug)]
enum Mesh {
    /// No `up` was ever run there.
    None,
    Running(Box<State>),
    /// `up` runs, and has not announced its addresses, or has withdrawn them.
    Changing,
    Down,
}

impl Mesh {
    fn read(home: &StateDir) -> Result<Self, Error> {
        if !home.env_file().exists() {
            return Ok(Self::None);
        }
        if !home.is_up_running()? {
            return Ok(Self::Down);
        }
        match home.state_file().exists() {
            true => Ok(Self::Running(Box::new(home.state()?))),
            false => Ok(Self::Changing),
        }
    }
}

/// Gateway that a command calls.
#[derive(Debug)]
pub struct Target {
    pub url: String,
    is_given: bool,
    home: Option<StateDir>,
}

impl Target {
    /// Returns the gateway of `--gateway`, or that of the folder's mesh, or the default one.
    ///
    /// # Errors
    ///
    /// If no gateway is given and the folder's mesh is down.
    pub fn new(global: &Global) -> Result<Self, Error> {
        let dir = global.dir.clone().or_else(state_dir::find);
        let home = dir.map(StateDir::new).transpose()?;
        Self::resolve(global.gateway.as_deref(), home)
    }

    /// Returns the gateway for a node, which starts in a folder that agents may write to. A folder
    /// found there can stop the command, and cannot direct the node's token elsewhere.
    ///
    /// # Errors
    ///
    /// If no gateway is given and the folder's mesh is down or not at the default address.
    pub fn of_node(global: &Global) -> Result<Self, Error> {
        let target = Self::new(global)?;
        if target.is_given || global.dir.is_some() || is_same_address(&target.url, DEFAULT_URL) {
            return Ok(target);
        }
        Err(Error::Usage(format!(
            "the mesh of this folder is at {url}: say that you mean it, by `--gateway {url}`",
            url = target.url
        )))
    }

    fn resolve(given: Option<&str>, home: Option<StateDir>) -> Result<Self, Error> {
        if let Some(given) = given {
            let url =
                if given.contains("://") { given.to_owned() } else { format!("http://{given}") };
            return Ok(Self { url, is_given: true, home });
        }
        let mesh = home.as_ref().map_or(Ok(Mesh::None), Mesh::read)?;
        let url = match (mesh, &home) {
            (Mesh::None, _) | (_, None) => DEFAULT_URL.to_owned(),
            (Mesh::Running(state), Some(home)) => local_address(&state, home)?,
            (mesh @ (Mesh::Changing | Mesh::Down), Some(home)) => return Err(down(home, &mesh)),
        };
        Ok(Self { url, is_given: false, home })
    }

    /// Whether this is the gateway of the folder's running mesh.
    ///
    /// # Errors
    ///
    /// If the folder's files cannot be read.
    pub fn is_local_mesh(&self) -> Result<bool, Error> {
        let mesh = self.home.as_ref().map_or(Ok(Mesh::None), Mesh::read)?;
        Ok(match mesh {
            Mesh::Running(state) => owns(&state, &self.url),
            Mesh::None | Mesh::Changing | Mesh::Down => false,
        })
    }

    /// Returns the key of the folder, as the value of `authorization`.
    ///
    /// # Errors
    ///
    /// If there is none, or it belongs to another gateway.
    pub fn folder_key(&self) -> Result<MetadataValue<Ascii>, Error> {
        let home = self.home.as_ref().ok_or(Error::NoKey)?;
        let text = fs::read_to_string(home.key_file()).unwrap_or_default();
        let key = text.trim();
        if key.is_empty() {
            return Err(Error::NoKey);
        }
        let key_file = home.key_file();
        let key_file = key_file.display();
        match Mesh::read(home)? {
            Mesh::Running(state) if owns(&state, &self.url) => bearer(key),
            Mesh::None if self.is_given => bearer(key),
            Mesh::None => Err(Error::Usage(format!(
                "`{key_file}` does not say to which gateway its key belongs: name it by --gateway or HOLDFAST_URL"
            ))),
            Mesh::Running(state) => Err(Error::Usage(elsewhere(&state, &self.url, home))),
            mesh @ (Mesh::Changing | Mesh::Down) => Err(down(home, &mesh)),
        }
    }
}

/// Address of the gateway of a running mesh. `up` listens on this machine only.
fn local_address(state: &State, home: &StateDir) -> Result<String, Error> {
    let url = &state.gateway.grpc;
    let is_local = url
        .strip_prefix("http://")
        .and_then(|address| address.parse::<std::net::SocketAddr>().ok())
        .is_some_and(|address| IpAddr::is_loopback(&address.ip()));
    if is_local {
        return Ok(url.clone());
    }
    Err(Error::Usage(format!(
        "`{}` names {url}, which is not on this machine, so `holdfast up` has not written it: name \
         the gateway by --gateway",
        home.state_file().display()
    )))
}

fn owns(state: &State, url: &str) -> bool {
    state.gateways.iter().any(|gateway| is_same_address(&gateway.grpc, url))
}

fn is_same_address(one: &str, other: &str) -> bool {
    let plain = |url: &str| url.trim_end_matches('/').replace("//localhost:", "//127.0.0.1:");
    plain(one) == plain(other)
}

/// Message for a gateway that is not of the folder's mesh.
fn elsewhere(state: &State, url: &str, home: &StateDir) -> String {
    let of_http = state.gateways.iter().find(|gateway| is_same_address(&gateway.http, url));
    if let Some(gateway) = of_http {
        return format!(
            "{url} is the gateway's HTTP port, and commands need gRPC, which is at {}",
            gateway.grpc
        );
    }
    format!(
        "the key in `{}` belongs to the mesh of that folder, at {}, and is not sent to {url}: give \
         the key of that gateway by --key or HOLDFAST_API_KEY",
        home.key_file().display(),
        state.gateway.grpc
    )
}

/// The error of a folder whose mesh does not answer.
fn down(home: &StateDir, mesh: &Mesh) -> Error {
    let folder = home.path().display();
    if matches!(mesh, Mesh::Changing) {
        return Error::MeshDown(format!(
            "the mesh of `{folder}` is starting or stopping: try again in a moment"
        ));
    }
    let address = last_address(home).map(|url| format!(" (it was at {url})")).unwrap_or_default();
    Error::MeshDown(format!(
        "the mesh of `{folder}` is down{address}, and nothing was sent: `{}` (or `make up`) starts \
         it, --gateway and HOLDFAST_URL name another gateway",
        start_command(home.path())
    ))
}

/// Address that the mesh's gateway had at its last start.
fn last_address(home: &StateDir) -> Option<String> {
    let env = fs::read_to_string(home.env_file()).ok()?;
    let prefix = "export HOLDFAST_MESH__GATEWAY_URL=";
    let value = env.lines().find_map(|line| line.strip_prefix(prefix))?;
    Some(value.trim_matches('\'').to_owned())
}

fn start_command(dir: &Path) -> String {
    let is_default = std::env::current_dir()
        .is_ok_and(|current| current.join(state_dir::DEFAULT_DIR_NAME) == dir);
    let program = program();
    if is_default {
        format!("{program} up")
    } else {
        format!("{program} up --dir {}", dir.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state_dir::{Gateway, Http, Scratch, write_private};

    const URL: &str = "http://127.0.0.1:20001";

    fn state(grpc: &str) -> State {
        let http = || Http { http: "http://127.0.0.1:20003".to_owned() };
        let gateway = Gateway { http: "http://127.0.0.1:20000".to_owned(), grpc: grpc.to_owned() };
        State {
            pid: 1,
            split: false,
            gateway: gateway.clone(),
            gateways: vec![gateway],
            runners: Vec::new(),
            bridge: http(),
            scheduler: http(),
            memory: http(),
            secrets: None,
            key: "hf_1_2".to_owned(),
            model: None,
        }
    }

    /// A folder in which `up` was run, with the files of a mesh that is at `grpc`.
    fn folder(grpc: &str) -> Scratch {
        let scratch = Scratch::new();
        let env = format!("# x\nexport HOLDFAST_MESH__GATEWAY_URL='{grpc}'\n");
        write_private(&scratch.0.env_file(), &env).unwrap();
        write_private(&scratch.0.key_file(), "hf_1_2\n").unwrap();
        let state = serde_json::to_string(&state(grpc)).unwrap();
        write_private(&scratch.0.state_file(), &state).unwrap();
        scratch
    }

    fn resolve(given: Option<&str>, folder: &Scratch) -> Result<Target, Error> {
        Target::resolve(given, Some(folder.0.clone()))
    }

    #[test]
    fn an_address_may_lack_its_scheme() {
        for (given, url) in [("h:1", "http://h:1"), ("https://h:1", "https://h:1")] {
            assert_eq!(Target::resolve(Some(given), None).unwrap().url, url);
        }
        assert_eq!(Target::resolve(None, None).unwrap().url, DEFAULT_URL);
    }

    #[test]
    fn a_mesh_that_was_killed_is_down_although_its_files_are_there() {
        let folder = folder(URL);

        let error = resolve(None, &folder).unwrap_err();

        let text = error.to_string();
        assert_eq!(error.code(), 5, "{text}");
        for part in [folder.0.path().to_str().unwrap(), URL, "up --dir", "`make up`", "--gateway"] {
            assert!(text.contains(part), "`{part}` is missing: {text}");
        }
        let given = resolve(Some(URL), &folder).unwrap();
        assert!(matches!(given.folder_key(), Err(Error::MeshDown(_))));
    }

    #[test]
    fn the_key_of_a_folder_is_for_its_running_mesh_alone() {
        let folder = folder(URL);
        let _lock = folder.0.lock().unwrap().unwrap();

        let own = resolve(None, &folder).unwrap();
        assert_eq!(own.url, URL);
        assert_eq!(own.folder_key().unwrap(), "Bearer hf_1_2");
        let same = resolve(Some("localhost:20001/"), &folder).unwrap();
        assert_eq!(same.folder_key().unwrap(), "Bearer hf_1_2");
        let other = resolve(Some(DEFAULT_URL), &folder).unwrap().folder_key().unwrap_err();
        assert!(other.to_string().contains(URL) && other.code() == 2, "{other}");
        let http = resolve(Some("127.0.0.1:20000"), &folder).unwrap().folder_key().unwrap_err();
        assert!(http.to_string().contains("HTTP port") && http.to_string().contains(URL), "{http}");

        StateDir::remove_file(&folder.0.state_file());
        let starting = resolve(None, &folder).unwrap_err();
        assert!(starting.to_string().contains("is starting"), "{starting}");
    }

    #[test]
    fn a_folder_directs_no_key_to_another_machine() {
        let folder = folder("http://192.0.2.1:18790");
        let _lock = folder.0.lock().unwrap().unwrap();

        let error = resolve(None, &folder).unwrap_err();

        assert!(error.to_string().contains("not on this machine"), "{error}");
    }

    #[test]
    fn the_key_of_a_folder_without_a_mesh_needs_a_named_gateway() {
        let folder = Scratch::new();
        let missing = resolve(None, &folder).unwrap().folder_key();
        assert!(matches!(missing, Err(Error::NoKey)));

        write_private(&folder.0.key_file(), "hf_1_2\n").unwrap();

        let unnamed = resolve(None, &folder).unwrap().folder_key().unwrap_err();
        assert!(unnamed.to_string().contains("HOLDFAST_URL"), "{unnamed}");
        assert!(resolve(Some("h:1"), &folder).unwrap().folder_key().is_ok());
    }
}
