//! The warm pool, and the deletion of pods that nobody uses. One runner at a time does it.

use holdfast_sandbox::Error as SandboxError;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;

use crate::{
    PodSandbox,
    cluster::{is_over, label},
    manifest::{KEEP_UNTIL, USE, WARM},
};

/// What a sweep did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PodSweep {
    pub deleted: usize,
    pub made: usize,
}

impl PodSandbox {
    /// Deletes pods that have ended or whose lease has expired, and fills the warm pool.
    ///
    /// # Errors
    ///
    /// If the cluster refuses a request or cannot be reached; the next sweep does the rest.
    pub async fn sweep(&self) -> Result<PodSweep, SandboxError> {
        let (cluster, now) = (self.cluster(), Timestamp::now());
        let mut swept = PodSweep::default();
        let mut warm = 0;
        let pods = cluster.list_all().await?;
        let names = pods.iter().map(Pod::name_any).collect();
        swept.deleted += cluster.delete_sandboxes_without(&names).await?;
        for pod in pods {
            if pod.metadata.deletion_timestamp.is_some() {
                continue;
            }
            let is_warm = label(&pod, USE).is_some_and(|value| value == WARM);
            let is_usable = !is_warm || (cluster.is_current(&pod) && warm < cluster.config.warm);
            if is_usable && !is_over(&pod) && keep_until(&pod).is_some_and(|until| until > now) {
                warm += u32::from(is_warm);
                continue;
            }
            // Not if a runner has just claimed or renewed it.
            match cluster.delete(&cluster.id_of(&pod), pod.metadata.resource_version.clone()).await
            {
                Ok(()) => swept.deleted += 1,
                Err(error) if error.is_of_pod() => {}
                Err(error) => return Err(error.into()),
            }
        }
        for _ in warm..cluster.config.warm {
            cluster.create(None).await?;
            swept.made += 1;
        }
        Ok(swept)
    }
}

fn keep_until(pod: &Pod) -> Option<Timestamp> {
    pod.metadata.annotations.as_ref()?.get(KEEP_UNTIL)?.parse().ok()
}
