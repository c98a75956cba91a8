//! gRPC service `Memory`.

use holdfast_embed::{MAX_TEXTS, Purpose};
use holdfast_proto::memory::v1::{self as pb, forget_request, memory_server::Memory};
use tonic::{Request, Response, Status};
use tracing::warn;

use super::{GrpcServices, convert, input, mesh_call, search, to_status};
use crate::{
    Error,
    find::SearchQuery,
    operations::ErasureTarget,
    store::{
        documents,
        items::{self, Active},
    },
    unit::kind,
    validation::{self, prefixed_id},
    viewer::Viewer,
};

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl Memory for GrpcServices {
    async fn put_items(
        &self,
        request: Request<pb::PutItemsRequest>,
    ) -> Answer<pb::PutItemsResponse> {
        let (tenant, request) = mesh_call(request)?;
        let who = Viewer::read(request.who).map_err(to_status)?;
        let like =
            validation::share("unless_like", Some(request.unless_like)).map_err(to_status)?;
        validation::at_most("request_id", &request.request_id, 256).map_err(to_status)?;
        if !(1..=64).contains(&request.items.len()) {
            let problem = format!("are {}: send 1 to 64 at once", request.items.len());
            return Err(to_status(Error::field("items", problem)));
        }
        let new: Result<Vec<_>, Error> = request.items.into_iter().map(input::item).collect();
        let kept = self
            .keeper
            .put(tenant, &who, &new.map_err(to_status)?, like.unwrap_or(0.0), &request.request_id)
            .await
            .map_err(to_status)?;
        let items = kept
            .into_iter()
            .map(|kept| pb::PutItem { id: prefixed_id("itm", kept.id), duplicate: kept.duplicate })
            .collect();
        Ok(Response::new(pb::PutItemsResponse { items }))
    }

    async fn get_item(&self, request: Request<pb::GetItemRequest>) -> Answer<pb::Item> {
        let (tenant, request) = mesh_call(request)?;
        let who = Viewer::read(request.who).map_err(to_status)?;
        let item = if request.id.is_empty() {
            validation::non_blank("key", &request.key, 512).map_err(to_status)?;
            self.keeper.value(tenant, &who, &request.key).await
        } else {
            let id = validation::id("item", "itm", &request.id).map_err(to_status)?;
            self.keeper.item(tenant, &who, id).await
        };
        Ok(Response::new(convert::item(item.map_err(to_status)?)))
    }

    async fn list_items(
        &self,
        request: Request<pb::ListItemsRequest>,
    ) -> Answer<pb::ListItemsResponse> {
        let (tenant, request) = mesh_call(request)?;
        let who = Viewer::read(request.who.clone()).map_err(to_status)?;
        let which = which_items(request).map_err(to_status)?;
        let found = self.keeper.items(tenant, &who, &which).await.map_err(to_status)?;
        let next = convert::next(which.limit, found.iter().map(|item| item.item_id));
        let items = found.into_iter().map(convert::item).collect();
        Ok(Response::new(pb::ListItemsResponse { items, next }))
    }

    async fn set_item_active(
        &self,
        request: Request<pb::SetItemActiveRequest>,
    ) -> Answer<pb::Item> {
        let (tenant, request) = mesh_call(request)?;
        let who = Viewer::read(request.who).map_err(to_status)?;
        let id = validation::id("item", "itm", &request.id).map_err(to_status)?;
        let active = if request.active { Active::Yes } else { Active::No };
        let item = self.keeper.set_active(tenant, &who, id, active).await.map_err(to_status)?;
        Ok(Response::new(convert::item(item)))
    }

    async fn add_turns(
        &self,
        request: Request<pb::AddTurnsRequest>,
    ) -> Answer<pb::AddTurnsResponse> {
        let (tenant, request) = mesh_call(request)?;
        let who = Viewer::read(request.who.clone()).map_err(to_status)?;
        let turns = input::turns(request).map_err(to_status)?;
        let added = self.keeper.add_turns(tenant, &who, &turns).await.map_err(to_status)?;
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let known = turns.turns.len().saturating_sub(added);
        Ok(Response::new(pb::AddTurnsResponse { added: number(added), known: number(known) }))
    }

    async fn index_document(
        &self,
        request: Request<pb::IndexDocumentRequest>,
    ) -> Answer<pb::IndexDocumentResponse> {
        let (tenant, request) = mesh_call(request)?;
        let who = Viewer::read(request.who.clone()).map_err(to_status)?;
        let document = input::document(request).map_err(to_status)?;
        let indexed = self.keeper.index(tenant, &who, &document).await.map_err(to_status)?;
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        Ok(Response::new(pb::IndexDocumentResponse {
            document_id: prefixed_id("doc", indexed.id),
            unchanged: indexed.unchanged,
            chunks: number(indexed.chunks),
            kept: number(indexed.kept),
        }))
    }

    async fn list_documents(
        &self,
        request: Request<pb::ListDocumentsRequest>,
    ) -> Answer<pb::ListDocumentsResponse> {
        let (tenant, request) = mesh_call(request)?;
        let who = Viewer::read(request.who).map_err(to_status)?;
        let which = documents::DocumentFilter {
            kind: kind::DOCUMENT,
            path_prefix: request.path_prefix,
            limit: validation::page(request.limit, 100).map_err(to_status)?,
            after: convert::after(&request.after).map_err(to_status)?,
            ..documents::DocumentFilter::default()
        };
        validation::at_most("path_prefix", &which.path_prefix, 512).map_err(to_status)?;
        let found = self.keeper.documents(tenant, &who, &which).await.map_err(to_status)?;
        let next = convert::next(which.limit, found.iter().map(|(one, ..)| one.document_id));
        let documents = found.into_iter().map(convert::document).collect();
        Ok(Response::new(pb::ListDocumentsResponse { documents, next }))
    }

    async fn remove_document(
        &self,
        request: Request<pb::RemoveDocumentRequest>,
    ) -> Answer<pb::RemoveDocumentResponse> {
        let (tenant, request) = mesh_call(request)?;
        let who = Viewer::read(request.who).map_err(to_status)?;
        validation::non_blank("path", &request.path, 512).map_err(to_status)?;
        let removed =
            self.keeper.remove_document(tenant, &who, &request.path).await.map_err(to_status)?;
        Ok(Response::new(pb::RemoveDocumentResponse { removed }))
    }

    async fn search(&self, request: Request<pb::SearchRequest>) -> Answer<pb::SearchResponse> {
        let within = holdfast_grpc::deadline::caller_timeout(request.metadata());
        let (tenant, request) = mesh_call(request)?;
        let who = Viewer::read(request.who.clone()).map_err(to_status)?;
        let wanted = search::search_query(request, self.half_life_days).map_err(to_status)?;
        let wanted = SearchQuery { within, ..wanted };
        let found = self.finder.find(tenant, &who, &wanted).await.map_err(to_status)?;
        Ok(Response::new(search::answer(found)))
    }

    async fn forget(&self, request: Request<pb::ForgetRequest>) -> Answer<pb::ForgetResponse> {
        let (tenant, request) = mesh_call(request)?;
        let who = Viewer::read(request.who).map_err(to_status)?;
        let what = what(request.what).map_err(to_status)?;
        let forgotten = self.keeper.forget(tenant, &who, what).await.map_err(to_status)?;
        Ok(Response::new(pb::ForgetResponse {
            erased: convert::counts(forgotten.erased),
            left: convert::counts(forgotten.left),
        }))
    }

    async fn move_user(
        &self,
        request: Request<pb::MoveUserRequest>,
    ) -> Answer<pb::MoveUserResponse> {
        let (tenant, request) = mesh_call(request)?;
        let who = Viewer::read(request.who).map_err(to_status)?;
        for (field, user) in [("from", &request.from), ("to", &request.to)] {
            validation::non_blank(field, user, 256).map_err(to_status)?;
        }
        let moved = self.keeper.move_user(tenant, &who, &request.from, &request.to).await;
        let moved = u64::try_from(moved.map_err(to_status)?).unwrap_or(0);
        Ok(Response::new(pb::MoveUserResponse { moved }))
    }

    async fn list_erasures(
        &self,
        request: Request<pb::ListErasuresRequest>,
    ) -> Answer<pb::ListErasuresResponse> {
        let (tenant, request) = mesh_call(request)?;
        let who = Viewer::read(request.who).map_err(to_status)?;
        validation::at_most("subject", &request.subject, 256).map_err(to_status)?;
        let limit = validation::page(request.limit, 50).map_err(to_status)?;
        let found = self.keeper.erasures(tenant, &who, &request.subject, limit).await;
        let erasures = found.map_err(to_status)?.into_iter().map(convert::erasure).collect();
        Ok(Response::new(pb::ListErasuresResponse { erasures }))
    }

    async fn embed(&self, request: Request<pb::EmbedRequest>) -> Answer<pb::EmbedResponse> {
        let (_, request) = mesh_call(request)?;
        if !(1..=MAX_TEXTS).contains(&request.texts.len()) {
            let problem = format!("are {}: send 1 to {MAX_TEXTS} at once", request.texts.len());
            return Err(to_status(Error::field("texts", problem)));
        }
        let embedder = &self.embedders.current;
        let vectors = embedder.embed(&request.texts, Purpose::Passage).await;
        let vectors = vectors.map_err(|error| {
            warn!(error = &error as &dyn std::error::Error, "texts of a client are not embedded");
            Status::unavailable("the embedding model does not answer: try again")
        })?;
        Ok(Response::new(pb::EmbedResponse {
            model: embedder.model().to_owned(),
            dimension: u32::try_from(embedder.dimension()).unwrap_or(u32::MAX),
            vectors: vectors.into_iter().map(|values| pb::Vector { values }).collect(),
        }))
    }

    async fn get_status(
        &self,
        request: Request<pb::GetStatusRequest>,
    ) -> Answer<pb::GetStatusResponse> {
        let (tenant, request) = mesh_call(request)?;
        let who = Viewer::read(request.who).map_err(to_status)?;
        let (rows, waiting, given_up) = self.keeper.status(tenant).await.map_err(to_status)?;
        self.views.invalidate(tenant);
        let view = self.views.of(tenant, &who).await.map_err(|error| to_status(error.into()))?;
        let now = &self.embedders.current;
        let (model, dimension, own) = match &view.space {
            Some(space) => {
                (space.model.clone(), convert::count(space.dimension.into()), space.own.is_some())
            }
            None => {
                let dimension = u32::try_from(now.dimension()).unwrap_or(u32::MAX);
                (now.model().to_owned(), dimension, false)
            }
        };
        let number = |count: i64| u64::try_from(count).unwrap_or(0);
        Ok(Response::new(pb::GetStatusResponse {
            rows: convert::counts(rows),
            model,
            dimension,
            next_model: now.model().to_owned(),
            pending: number(waiting),
            failed: number(given_up),
            search: if own { "index" } else { "exact" }.to_owned(),
        }))
    }
}

fn which_items(request: pb::ListItemsRequest) -> Result<items::ItemFilter, Error> {
    for (field, text) in [
        ("type", &request.r#type),
        ("session", &request.session),
        ("subject", &request.subject),
        ("key_prefix", &request.key_prefix),
    ] {
        validation::at_most(field, text, 512)?;
    }
    let of_agent = request.of_agent.as_deref().map(crate::viewer::agent).transpose()?;
    if let Some(user) = &request.of_user {
        validation::at_most("of_user", user, 256)?;
    }
    Ok(items::ItemFilter {
        of_agent,
        of_user: request.of_user,
        kinds: convert::kinds(&request.kinds)?,
        of_type: request.r#type,
        session: request.session,
        subject: request.subject,
        key_prefix: request.key_prefix,
        history: request.history,
        limit: validation::page(request.limit, 50)?,
        after: convert::after(&request.after)?,
    })
}

fn what(given: Option<forget_request::What>) -> Result<ErasureTarget, Error> {
    use forget_request::What as Asked;
    match given {
        Some(Asked::Item(id)) => Ok(ErasureTarget::Item(validation::id("item", "itm", &id)?)),
        Some(Asked::Session(session)) => {
            validation::non_blank("session", &session, 256)?;
            Ok(ErasureTarget::Session(session))
        }
        Some(Asked::User(user)) => {
            validation::non_blank("user", &user, 256)?;
            Ok(ErasureTarget::User(user))
        }
        Some(Asked::Turns(session)) => {
            validation::non_blank("turns", &session, 256)?;
            Ok(ErasureTarget::Turns(session))
        }
        None => Err(Error::field("what", "is missing: name an item, a session or a user")),
    }
}
