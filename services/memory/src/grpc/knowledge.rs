//! gRPC service `Knowledge`.

use holdfast_proto::memory::v1::{self as pb, knowledge_server::Knowledge};
use tonic::{Request, Response, Status};

use super::{GrpcServices, convert, mesh_call, to_status};
use crate::{
    Error,
    operations::{NewArticle, Revision, Verdict, scope},
    store::{documents::DocumentFilter, items},
    validation::{self, Provenance},
    viewer::Viewer,
};

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl Knowledge for GrpcServices {
    async fn ingest(&self, request: Request<pb::IngestRequest>) -> Answer<pb::Article> {
        let (tenant, request) = mesh_call(request)?;
        let who = Viewer::read(request.who.clone()).map_err(to_status)?;
        let new = new_article(request).map_err(to_status)?;
        let article = self.keeper.ingest(tenant, &who, &new).await.map_err(to_status)?;
        Ok(Response::new(convert::article(article)))
    }

    async fn update(&self, request: Request<pb::UpdateRequest>) -> Answer<pb::Article> {
        let (tenant, request) = mesh_call(request)?;
        let who = Viewer::read(request.who.clone()).map_err(to_status)?;
        let id = validation::id("article", "doc", &request.id).map_err(to_status)?;
        let change = revision(request).map_err(to_status)?;
        let article = self.keeper.update(tenant, &who, id, &change).await.map_err(to_status)?;
        Ok(Response::new(convert::article(article)))
    }

    async fn get(&self, request: Request<pb::GetRequest>) -> Answer<pb::Article> {
        let (tenant, request) = mesh_call(request)?;
        let who = Viewer::read(request.who).map_err(to_status)?;
        let id = validation::id("article", "doc", &request.id).map_err(to_status)?;
        let version = i32::try_from(request.version).unwrap_or(i32::MAX);
        let article = self.keeper.article(tenant, &who, id, version).await.map_err(to_status)?;
        Ok(Response::new(convert::article(article)))
    }

    async fn list(&self, request: Request<pb::ListRequest>) -> Answer<pb::ListResponse> {
        let (tenant, request) = mesh_call(request)?;
        let who = Viewer::read(request.who.clone()).map_err(to_status)?;
        validation::tags(&request.tags).map_err(to_status)?;
        let which = DocumentFilter {
            scope: scope_of(request.scope()),
            tags: request.tags,
            limit: validation::page(request.limit, 50).map_err(to_status)?,
            after: convert::after(&request.after).map_err(to_status)?,
            ..DocumentFilter::default()
        };
        let found = self.keeper.articles(tenant, &who, &which).await.map_err(to_status)?;
        let next = convert::next(which.limit, found.iter().map(|(one, ..)| one.document_id));
        let articles = found.into_iter().map(convert::listed).collect();
        Ok(Response::new(pb::ListResponse { articles, next }))
    }

    async fn versions(
        &self,
        request: Request<pb::VersionsRequest>,
    ) -> Answer<pb::VersionsResponse> {
        let (tenant, request) = mesh_call(request)?;
        let who = Viewer::read(request.who).map_err(to_status)?;
        let id = validation::id("article", "doc", &request.id).map_err(to_status)?;
        let (document, versions) =
            self.keeper.versions(tenant, &who, id).await.map_err(to_status)?;
        let versions =
            versions.into_iter().map(|one| convert::one_version(&document, one)).collect();
        Ok(Response::new(pb::VersionsResponse { versions }))
    }

    async fn remove(&self, request: Request<pb::RemoveRequest>) -> Answer<pb::RemoveResponse> {
        let (tenant, request) = mesh_call(request)?;
        let who = Viewer::read(request.who).map_err(to_status)?;
        let id = validation::id("article", "doc", &request.id).map_err(to_status)?;
        let removed = self.keeper.remove_article(tenant, &who, id).await.map_err(to_status)?;
        Ok(Response::new(pb::RemoveResponse { removed }))
    }

    async fn proposals(
        &self,
        request: Request<pb::ProposalsRequest>,
    ) -> Answer<pb::ProposalsResponse> {
        let (tenant, request) = mesh_call(request)?;
        let who = Viewer::read(request.who).map_err(to_status)?;
        if request.limit > 100 {
            let problem = format!("is {}: write 1 to 100, or 0", request.limit);
            return Err(to_status(Error::field("limit", problem)));
        }
        let which = items::ItemFilter {
            history: request.decided,
            limit: validation::page(request.limit, 50).map_err(to_status)?,
            after: convert::after(&request.after).map_err(to_status)?,
            ..items::ItemFilter::default()
        };
        let found = self.keeper.proposals(tenant, &who, &which).await.map_err(to_status)?;
        let next = convert::next(which.limit, found.iter().map(|one| one.item.item_id));
        let listed = |one| pb::Proposal { text: String::new(), ..convert::proposal(one) };
        let proposals = found.into_iter().map(listed).collect();
        Ok(Response::new(pb::ProposalsResponse { proposals, next }))
    }

    async fn get_proposal(&self, request: Request<pb::GetProposalRequest>) -> Answer<pb::Proposal> {
        let (tenant, request) = mesh_call(request)?;
        let who = Viewer::read(request.who).map_err(to_status)?;
        let id = validation::id("proposal", "itm", &request.id).map_err(to_status)?;
        let proposal = self.keeper.proposal(tenant, &who, id).await.map_err(to_status)?;
        Ok(Response::new(convert::proposal(proposal)))
    }

    async fn decide(&self, request: Request<pb::DecideRequest>) -> Answer<pb::Proposal> {
        let (tenant, request) = mesh_call(request)?;
        let verdict = match request.verdict() {
            pb::Verdict::Accepted => Verdict::Accepted,
            pb::Verdict::Declined => Verdict::Declined,
            pb::Verdict::Unspecified => {
                let problem = "is missing: write `accepted` or `declined`";
                return Err(to_status(Error::field("verdict", problem)));
            }
        };
        let who = Viewer::read(request.who).map_err(to_status)?;
        let id = validation::id("proposal", "itm", &request.id).map_err(to_status)?;
        validation::non_blank("by", &request.by, 256).map_err(to_status)?;
        validation::at_most("reason", &request.reason, 2000).map_err(to_status)?;
        let decision = (verdict, request.by.as_str(), request.reason.as_str());
        let proposal = self.keeper.decide(tenant, &who, id, decision).await.map_err(to_status)?;
        Ok(Response::new(convert::proposal(proposal)))
    }
}

fn new_article(request: pb::IngestRequest) -> Result<NewArticle, Error> {
    let scope = scope_of(request.scope())
        .ok_or_else(|| Error::field("scope", "is missing: write `tenant` or `workspace`"))?;
    validation::at_most("title", &request.title, 800)?;
    validation::at_most("media_type", &request.media_type, 200)?;
    validation::at_most("author", &request.author, 200)?;
    validation::at_most("request_id", &request.request_id, 256)?;
    validation::at_most("session", &request.session, 256)?;
    validation::tags(&request.tags)?;
    Ok(NewArticle {
        scope,
        title: request.title,
        content: request.content,
        media_type: request.media_type,
        tags: request.tags,
        provenance: Provenance::read(request.provenance)?,
        author: request.author,
        confidence: validation::share("confidence", request.confidence)?,
        request: request.request_id,
        session: request.session,
    })
}

fn revision(request: pb::UpdateRequest) -> Result<Revision, Error> {
    validation::at_most("title", &request.title, 800)?;
    validation::at_most("media_type", &request.media_type, 200)?;
    validation::at_most("author", &request.author, 200)?;
    validation::at_most("session", &request.session, 256)?;
    let user = request.who.map(|who| who.user).unwrap_or_default();
    let tags = request.tags.map(|tags| tags.tags);
    validation::tags(tags.as_deref().unwrap_or_default())?;
    Ok(Revision {
        content: request.content,
        media_type: request.media_type,
        title: request.title,
        tags,
        provenance: Provenance::read(request.provenance)?,
        author: request.author,
        confidence: validation::share("confidence", request.confidence)?,
        version: request.version,
        session: request.session,
        user,
    })
}

const fn scope_of(given: pb::Scope) -> Option<i16> {
    match given {
        pb::Scope::Unspecified => None,
        pb::Scope::Tenant => Some(scope::TENANT),
        pb::Scope::Workspace => Some(scope::WORKSPACE),
    }
}
