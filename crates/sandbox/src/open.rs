//! Choice of the backend, and a test command in it before it is used.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{
    Access, BackendChoice, Command, CommandEnd, Config, Error, LocalSandbox,
    bubblewrap::Bubblewrap, local::Local, plain::Plain,
};

/// Makes the sandbox on this machine that the configuration asks for. `true` has run in it when this returns.
///
/// Call it at start-up, within a runtime.
///
/// # Errors
///
/// If the configuration is wrong, or the sandbox does not work here; the message says what to do.
pub async fn open(config: &Config) -> Result<Arc<dyn LocalSandbox>, Error> {
    config.check()?;
    let sandbox: Arc<dyn LocalSandbox> = match config.backend {
        BackendChoice::None => return Err(Error::CommandsDisabled),
        BackendChoice::Pods => return Err(Error::NotInPods),
        BackendChoice::Plain => Arc::new(Local::new(Plain, config.clone())),
        BackendChoice::Bubblewrap => bubblewrap(config).await?,
        BackendChoice::Auto => match bubblewrap(config).await {
            Ok(sandbox) => sandbox,
            Err(error) if config.hosted => return Err(error),
            Err(error) => {
                warn!(%error, "commands will run without isolation: host nobody on this machine");
                Arc::new(Local::new(Plain, config.clone()))
            }
        },
    };
    info!(backend = %sandbox.backend(), "the sandbox works");
    Ok(sandbox)
}

async fn bubblewrap(config: &Config) -> Result<Arc<dyn LocalSandbox>, Error> {
    let sandbox = Local::new(Bubblewrap::new(config)?, config.clone());
    // Any directory works; this one is in every sandbox already.
    let mut command = Command::new("true", "/usr");
    command.workspace.access = Access::Read;
    let outcome = sandbox.run(command, CancellationToken::new()).await?;
    match outcome.ended {
        CommandEnd::Exited(0) => Ok(Arc::new(sandbox)),
        ended => Err(Error::Unsupported { said: format!("`true`: {ended}") }),
    }
}
