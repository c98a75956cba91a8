//! Start of a command behind the egress proxy.
//!
//! Before the command's script, the proxy's listener is made in the command's namespace. The
//! variables of the command are set after that: some, such as `LD_PRELOAD` and `BASH_ENV`, run code
//! of the workspace, which must not get hold of the listener.

use std::{collections::BTreeMap, io, path::Path, sync::Arc};

use holdfast_proxy::{ConnectRules, ListenerChannel, NAMESPACE_URL, Proxy, variables};

/// Maximum number of open connections of a command; further ones are closed at once.
const MAX_CONNECTIONS: usize = 64;

/// What a command behind the proxy is started with.
pub(super) struct ProxiedStart {
    pub(super) channel: ListenerChannel,
    /// Script that sets the variables. It is no argument, because arguments are visible to
    /// everybody on the machine.
    pub(super) variables: Vec<u8>,
    pub(super) proxy: Proxy,
}

impl ProxiedStart {
    pub(super) fn new(
        env: &BTreeMap<String, String>,
        rules: Arc<dyn ConnectRules>,
        listener: Option<&Path>,
    ) -> io::Result<Self> {
        let (near, channel) = ListenerChannel::open(listener)?;
        let proxy = Proxy::start_in_namespace(near, rules, MAX_CONNECTIONS);
        Ok(Self { channel, variables: export_script(env).into_bytes(), proxy })
    }
}

fn export_script(env: &BTreeMap<String, String>) -> String {
    let own = env.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let all = own.chain(variables(NAMESPACE_URL));
    all.map(|(name, value)| format!("export {name}='{}'\n", value.replace('\'', r"'\''"))).collect()
}

/// Script that listens for the proxy, sets the variables and becomes the shell of the command, whose
/// script is its first argument.
pub(super) fn first_script(channel: i32, variables: i32) -> String {
    format!(
        "{}. /proc/self/fd/{variables}\nexec {variables}<&-\nexec \"$0\" -c \"$1\"",
        ListenerChannel::shell_command(channel)
    )
}
