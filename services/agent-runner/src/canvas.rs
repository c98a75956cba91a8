//! Canvas tool: storage of its surfaces, and which sessions have one.

use holdfast_session::NewSurface;
use holdfast_tools::{Allowed, Call, Canvases, Shown, ShownAs};
use holdfast_types::{Fault as _, Kind, SessionKind, Target};

use crate::mesh::Inside;

const CANVAS: &str = "canvas";

impl Canvases for Inside {
    async fn surfaces(&self, call: &Call) -> anyhow::Result<Vec<Shown>> {
        let there = self.sessions.surfaces(call.tenant, call.session).await?;
        there.into_iter().map(|one| shown(one.is)).collect()
    }

    async fn change(
        &self,
        call: &Call,
        put: Vec<Shown>,
        gone: Vec<String>,
    ) -> anyhow::Result<Result<(), String>> {
        let mut names: Vec<String> = put.iter().map(|one| one.name.clone()).collect();
        let put: Vec<NewSurface> = put.into_iter().map(kept).collect();
        match self.sessions.change_surfaces(call.tenant, call.session, &put, &gone).await {
            Ok(()) => {}
            Err(error) if error.kind() == Kind::Conflict => return Ok(Err(error.to_string())),
            Err(error) => return Err(error.into()),
        }
        names.extend(gone);
        self.hold(call)?.desk().redrawn.extend(names);
        Ok(Ok(()))
    }
}

/// Removes the canvas from sessions in which nobody can see it: it is offered only in conversations
/// of API clients, never on a channel (spec TOL-026).
pub(crate) fn narrowed(allowed: Allowed, kind: SessionKind, target: Option<&Target>) -> Allowed {
    if has_canvas(kind, target) {
        return allowed;
    }
    Allowed::by(move |tool| tool != CANVAS && allowed.allows(tool))
}

const fn has_canvas(kind: SessionKind, target: Option<&Target>) -> bool {
    match kind {
        SessionKind::Main
        | SessionKind::Api
        | SessionKind::Dm
        | SessionKind::Group
        | SessionKind::Topic
        | SessionKind::Work
        | SessionKind::Global => target.is_none(),
        // Nobody watches these sessions.
        SessionKind::Subagent | SessionKind::Cron | SessionKind::Heartbeat => false,
    }
}

fn kept(one: Shown) -> NewSurface {
    let Shown { name, title, kind, content, shown } = one;
    NewSurface { name, title, kind: kind.as_str().to_owned(), content, shown }
}

fn shown(one: NewSurface) -> anyhow::Result<Shown> {
    let NewSurface { name, title, kind, content, shown } = one;
    let kind = [ShownAs::A2ui, ShownAs::Markdown, ShownAs::Html]
        .into_iter()
        .find(|known| known.as_str() == kind)
        .ok_or_else(|| anyhow::anyhow!("a surface is stored that this version cannot read"))?;
    Ok(Shown { name, title, kind, content, shown })
}
