//! The service `Knowledge`: a tenant's articles.

mod proposals;

use holdfast_proto::{
    gateway::v1::{
        self as pb, AcceptProposalRequest, AcceptProposalResponse, DeclineProposalRequest,
        DeclineProposalResponse, GetArticleRequest, GetArticleResponse, GetProposalRequest,
        GetProposalResponse, IngestArticleRequest, IngestArticleResponse,
        ListArticleVersionsRequest, ListArticleVersionsResponse, ListArticlesRequest,
        ListArticlesResponse, ListProposalsRequest, ListProposalsResponse, RemoveArticleRequest,
        RemoveArticleResponse, SearchArticlesRequest, SearchArticlesResponse, UpdateArticleRequest,
        UpdateArticleResponse, knowledge_server::Knowledge as Service,
    },
    memory::v1 as kept,
};
use tonic::{Request, Response, Status};

use super::{
    super::{AgentNames, State, require_text},
    agent_name, caller_idempotency_key, counts, full_access, provenance, source_of, with_timeout,
};
use crate::{Error, audit};

/// Implements `holdfast.gateway.v1.Knowledge`.
#[derive(Debug)]
pub struct Knowledge(pub State);

#[tonic::async_trait]
impl Service for Knowledge {
    async fn search_articles(
        &self,
        request: Request<SearchArticlesRequest>,
    ) -> Result<Response<SearchArticlesResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        require_text("query", &request.query)?;
        let agent = match request.agent.as_str() {
            "" => String::new(),
            named => self.0.agent_id(caller.tenant, named).await?.to_string(),
        };
        let search = kept::SearchRequest {
            who: Some(kept::Who { agent, ..kept::Who::default() }),
            query: request.query,
            k: request.limit,
            filter: Some(kept::Filter {
                kinds: vec![kept::Kind::Knowledge.into()],
                tags: request.tags,
                ..kept::Filter::default()
            }),
            ..kept::SearchRequest::default()
        };

        let answer = with_timeout(self.0.memory()?.search(caller.tenant, search)).await?;

        let found = answer.hits.into_iter().map(found_of).collect();
        Ok(Response::new(SearchArticlesResponse { found, model: answer.model }))
    }

    async fn ingest_article(
        &self,
        request: Request<IngestArticleRequest>,
    ) -> Result<Response<IngestArticleResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.agent);
        require_text("source", &request.source)?;
        if request.content.is_empty() {
            return Err(Error::MissingField("content").into());
        }
        let (scope, agent) = match request.agent.as_str() {
            "" => (kept::Scope::Tenant, String::new()),
            named => {
                let agent = self.0.agent_id(caller.tenant, named).await?;
                (kept::Scope::Workspace, agent.to_string())
            }
        };
        let ingest = kept::IngestRequest {
            who: Some(kept::Who { agent, maintainer: true, ..kept::Who::default() }),
            scope: scope.into(),
            title: request.title,
            content: request.content,
            media_type: request.media_type,
            tags: request.tags,
            provenance: Some(provenance(&caller, &request.source)),
            author: request.author,
            confidence: request.confidence,
            request_id: caller_idempotency_key(&caller, &request.request_id),
            session: String::new(),
        };

        let article = with_timeout(self.0.memory()?.kb_ingest(caller.tenant, ingest)).await?;

        let agents = self.0.agent_names(caller.tenant).await?;
        let article = Some(article_of(article, &agents));
        Ok(Response::new(IngestArticleResponse { article }))
    }

    async fn get_article(
        &self,
        request: Request<GetArticleRequest>,
    ) -> Result<Response<GetArticleResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        require_text("id", &request.id)?;
        let get =
            kept::GetRequest { who: Some(full_access()), id: request.id, version: request.version };

        let article = with_timeout(self.0.memory()?.kb_get(caller.tenant, get)).await?;

        let agents = self.0.agent_names(caller.tenant).await?;
        let article = Some(article_of(article, &agents));
        Ok(Response::new(GetArticleResponse { article }))
    }

    async fn update_article(
        &self,
        request: Request<UpdateArticleRequest>,
    ) -> Result<Response<UpdateArticleResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.id);
        require_text("id", &request.id)?;
        require_text("source", &request.source)?;
        let update = kept::UpdateRequest {
            who: Some(full_access()),
            id: request.id,
            content: request.content,
            media_type: request.media_type,
            title: request.title,
            tags: request.tags.map(|tags| kept::Tags { tags: tags.tags }),
            provenance: Some(provenance(&caller, &request.source)),
            author: request.author,
            version: request.version,
            ..kept::UpdateRequest::default()
        };

        let article = with_timeout(self.0.memory()?.kb_update(caller.tenant, update)).await?;

        let agents = self.0.agent_names(caller.tenant).await?;
        let article = Some(article_of(article, &agents));
        Ok(Response::new(UpdateArticleResponse { article }))
    }

    async fn list_articles(
        &self,
        request: Request<ListArticlesRequest>,
    ) -> Result<Response<ListArticlesResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let who = match request.agent.as_str() {
            "" => full_access(),
            named => {
                let agent = self.0.agent_id(caller.tenant, named).await?.to_string();
                kept::Who { agent, ..kept::Who::default() }
            }
        };
        let list = kept::ListRequest {
            who: Some(who),
            scope: kept::Scope::Unspecified.into(),
            tags: request.tags,
            limit: request.limit,
            after: request.after,
        };

        let listed = with_timeout(self.0.memory()?.kb_list(caller.tenant, list)).await?;

        let agents = self.0.agent_names(caller.tenant).await?;
        let articles = listed.articles.into_iter().map(|one| article_of(one, &agents)).collect();
        Ok(Response::new(ListArticlesResponse { articles, next: listed.next }))
    }

    async fn list_article_versions(
        &self,
        request: Request<ListArticleVersionsRequest>,
    ) -> Result<Response<ListArticleVersionsResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        require_text("id", &request.id)?;
        let asked = kept::VersionsRequest { who: Some(full_access()), id: request.id };

        let listed = with_timeout(self.0.memory()?.kb_versions(caller.tenant, asked)).await?;

        let agents = self.0.agent_names(caller.tenant).await?;
        let versions = listed.versions.into_iter().map(|one| article_of(one, &agents)).collect();
        Ok(Response::new(ListArticleVersionsResponse { versions }))
    }

    async fn remove_article(
        &self,
        request: Request<RemoveArticleRequest>,
    ) -> Result<Response<RemoveArticleResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.id);
        require_text("id", &request.id)?;
        let remove = kept::RemoveRequest { who: Some(full_access()), id: request.id.clone() };

        let removed = with_timeout(self.0.memory()?.kb_remove(caller.tenant, remove)).await?;

        if !removed.removed {
            return Err(Error::NoArticle(request.id.chars().take(80).collect()).into());
        }
        Ok(Response::new(RemoveArticleResponse {}))
    }

    async fn list_proposals(
        &self,
        request: Request<ListProposalsRequest>,
    ) -> Result<Response<ListProposalsResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        Ok(Response::new(self.0.proposals(caller.tenant, request).await?))
    }

    async fn get_proposal(
        &self,
        request: Request<GetProposalRequest>,
    ) -> Result<Response<GetProposalResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        require_text("id", &request.id)?;
        let proposal = Some(self.0.proposal(caller.tenant, request.id).await?);
        Ok(Response::new(GetProposalResponse { proposal }))
    }

    async fn accept_proposal(
        &self,
        request: Request<AcceptProposalRequest>,
    ) -> Result<Response<AcceptProposalResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.id);
        require_text("id", &request.id)?;
        let decision = (kept::Verdict::Accepted, request.reason);
        let proposal = Some(self.0.decide(&caller, request.id, decision).await?);
        Ok(Response::new(AcceptProposalResponse { proposal }))
    }

    async fn decline_proposal(
        &self,
        request: Request<DeclineProposalRequest>,
    ) -> Result<Response<DeclineProposalResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.id);
        require_text("id", &request.id)?;
        require_text("reason", &request.reason)?;
        let decision = (kept::Verdict::Declined, request.reason);
        let proposal = Some(self.0.decide(&caller, request.id, decision).await?);
        Ok(Response::new(DeclineProposalResponse { proposal }))
    }
}

fn scope_word(scope: kept::Scope) -> String {
    match scope {
        kept::Scope::Workspace => "agent",
        kept::Scope::Tenant | kept::Scope::Unspecified => "tenant",
    }
    .to_owned()
}

fn article_of(article: kept::Article, agents: &AgentNames) -> pb::Article {
    pb::Article {
        scope: scope_word(article.scope()),
        agent: agent_name(&article.agent, agents),
        source: article.provenance.map(source_of),
        masked: counts(article.masked),
        id: article.id,
        version: article.version,
        title: article.title,
        text: article.text,
        tags: article.tags,
        author: article.author,
        confidence: article.confidence,
        created_at: article.created_at,
        updated_at: article.updated_at,
        chunks: article.chunks,
        pending: article.pending,
        accepted_by: article.accepted_by,
    }
}

fn found_of(hit: kept::Hit) -> pb::FoundArticle {
    let why = hit.why.unwrap_or_default();
    pb::FoundArticle {
        scope: scope_word(hit.scope()),
        source: hit.provenance.map(source_of),
        id: hit.id,
        title: hit.path,
        text: hit.text,
        headings: hit.headings,
        tags: hit.tags,
        score: hit.score,
        meaning: why.cosine,
        words: why.words_raw,
    }
}
