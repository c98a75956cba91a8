//! From a process' start until it says that it is ready, with the backends up.

use crate::{
    Pace,
    mesh::{Mesh, Service},
    report::Line,
    stats::Samples,
};

pub async fn measure(mesh: &Mesh, pace: Pace) -> anyhow::Result<Vec<Line>> {
    let mut lines = Vec::new();
    for service in Service::ALL {
        let mut times = Vec::new();
        for _ in 0..pace.count(5, 3) {
            times.push(mesh.time_start(service).await?);
        }
        let times: Samples = times.into_iter().collect();
        lines.push(
            Line::millis(service.name(), times.median())
                .at_most(50.0)
                .note(format!("median of {}", times.count())),
        );
    }
    Ok(lines)
}
