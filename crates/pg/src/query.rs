//! Statements with parameters.
//!
//! Postgres stores no NUL character: a `text` value that holds one and a `jsonb` value that holds
//! `\u0000` are refused. Models, commands and files contain them, so each parameter is checked here,
//! where all of them pass: NUL becomes U+FFFD.

use std::{fmt, marker::PhantomData};

use sqlx::{
    Encode, Execute as _, FromRow, Postgres, SqlSafeStr, Type, TypeInfo as _,
    encode::IsNull,
    error::BoxDynError,
    postgres::{PgArgumentBuffer, PgArguments, PgQueryResult, PgRow, PgTypeInfo},
};

use crate::Connection;

const REPLACEMENT: &str = "\u{fffd}";

/// A statement whose rows are not read.
#[must_use = "a statement does nothing before it is executed"]
pub struct Query(sqlx::query::Query<'static, Postgres, PgArguments>);

/// A statement with rows of type `O`.
#[derive(Debug)]
#[must_use = "a statement does nothing before it is executed"]
pub struct QueryAs<O>(Query, PhantomData<fn() -> O>);

/// A statement with one column of type `O`.
#[derive(Debug)]
#[must_use = "a statement does nothing before it is executed"]
pub struct QueryScalar<O>(QueryAs<(O,)>);

/// Creates a prepared statement whose rows are not mapped.
pub fn query(sql: impl SqlSafeStr) -> Query {
    Query(sqlx::query(sql))
}

/// Creates a prepared statement whose rows become values of type `O`.
pub fn query_as<O: for<'r> FromRow<'r, PgRow>>(sql: impl SqlSafeStr) -> QueryAs<O> {
    QueryAs(query(sql), PhantomData)
}

/// Creates a prepared statement whose rows have one column.
pub fn query_scalar<O>(sql: impl SqlSafeStr) -> QueryScalar<O>
where
    (O,): for<'r> FromRow<'r, PgRow>,
{
    QueryScalar(query_as(sql))
}

/// A statement whose text depends on the request.
pub struct QueryBuilder(sqlx::QueryBuilder<Postgres>);

impl QueryBuilder {
    /// Creates a builder that begins with this SQL.
    pub fn new(sql: &str) -> Self {
        Self(sqlx::QueryBuilder::new(sql))
    }

    /// Appends SQL, which must not come from a request.
    pub fn push(&mut self, sql: &str) -> &mut Self {
        self.0.push(sql);
        self
    }

    /// Appends a parameter.
    pub fn push_bind<'t, T: Encode<'t, Postgres> + Type<Postgres>>(
        &mut self,
        value: T,
    ) -> &mut Self {
        self.0.push_bind(WithoutNul(value));
        self
    }

    /// Returns the statement.
    pub fn build_query_as<O: for<'r> FromRow<'r, PgRow>>(mut self) -> QueryAs<O> {
        let mut built = self.0.build();
        let arguments = built.take_arguments().ok().flatten().unwrap_or_default();
        QueryAs(Query(sqlx::query_with(built.sql(), arguments)), PhantomData)
    }
}

impl fmt::Debug for QueryBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueryBuilder").finish_non_exhaustive()
    }
}

impl fmt::Debug for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Query").finish_non_exhaustive()
    }
}

impl Query {
    /// Sets the next parameter.
    pub fn bind<'t, T: Encode<'t, Postgres> + Type<Postgres>>(self, value: T) -> Self {
        Self(self.0.bind(WithoutNul(value)))
    }

    pub async fn execute(self, conn: &mut Connection) -> sqlx::Result<PgQueryResult> {
        let query = conn.before(self.0).await?;
        let result = conn.run(|conn| query.execute(conn)).await;
        conn.after(result).await
    }

    pub async fn fetch_all(self, conn: &mut Connection) -> sqlx::Result<Vec<PgRow>> {
        let query = conn.before(self.0).await?;
        let result = conn.run(|conn| query.fetch_all(conn)).await;
        conn.after(result).await
    }

    pub async fn fetch_one(self, conn: &mut Connection) -> sqlx::Result<PgRow> {
        let query = conn.before(self.0).await?;
        let result = conn.run(|conn| query.fetch_one(conn)).await;
        conn.after(result).await
    }

    pub async fn fetch_optional(self, conn: &mut Connection) -> sqlx::Result<Option<PgRow>> {
        let query = conn.before(self.0).await?;
        let result = conn.run(|conn| query.fetch_optional(conn)).await;
        conn.after(result).await
    }
}

impl<O: for<'r> FromRow<'r, PgRow>> QueryAs<O> {
    /// Sets the next parameter.
    pub fn bind<'t, T: Encode<'t, Postgres> + Type<Postgres>>(self, value: T) -> Self {
        Self(self.0.bind(value), PhantomData)
    }

    pub async fn fetch_all(self, conn: &mut Connection) -> sqlx::Result<Vec<O>> {
        self.0.fetch_all(conn).await?.iter().map(O::from_row).collect()
    }

    pub async fn fetch_one(self, conn: &mut Connection) -> sqlx::Result<O> {
        O::from_row(&self.0.fetch_one(conn).await?)
    }

    pub async fn fetch_optional(self, conn: &mut Connection) -> sqlx::Result<Option<O>> {
        self.0.fetch_optional(conn).await?.as_ref().map(O::from_row).transpose()
    }
}

impl<O> QueryScalar<O>
where
    (O,): for<'r> FromRow<'r, PgRow>,
{
    /// Sets the next parameter.
    pub fn bind<'t, T: Encode<'t, Postgres> + Type<Postgres>>(self, value: T) -> Self {
        Self(self.0.bind(value))
    }

    pub async fn fetch_all(self, conn: &mut Connection) -> sqlx::Result<Vec<O>> {
        Ok(self.0.fetch_all(conn).await?.into_iter().map(|row| row.0).collect())
    }

    pub async fn fetch_one(self, conn: &mut Connection) -> sqlx::Result<O> {
        Ok(self.0.fetch_one(conn).await?.0)
    }

    pub async fn fetch_optional(self, conn: &mut Connection) -> sqlx::Result<Option<O>> {
        Ok(self.0.fetch_optional(conn).await?.map(|row| row.0))
    }
}

/// A parameter; NUL in its text is replaced when it is encoded.
struct WithoutNul<T>(T);

impl<T: Type<Postgres>> Type<Postgres> for WithoutNul<T> {
    fn type_info() -> PgTypeInfo {
        T::type_info()
    }

    fn compatible(ty: &PgTypeInfo) -> bool {
        T::compatible(ty)
    }
}

impl<'q, T: Encode<'q, Postgres> + Type<Postgres>> Encode<'q, Postgres> for WithoutNul<T> {
    fn encode_by_ref(&self, buf: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        let from = buf.len();
        let is_null = self.0.encode_by_ref(buf)?;
        let info = self.0.produces().unwrap_or_else(T::type_info);
        match info.name() {
            "TEXT" => replace_in_text(buf, from),
            "TEXT[]" => replace_in_text_array(buf, from),
            // The version of the format and the lengths of an array's items contain no backslash
            // that is followed by `u0000`.
            "JSONB" => replace_in_json(&mut buf[from..]),
            "JSONB[]" => {
                for item in array_items(&buf[from..]) {
                    replace_in_json(&mut buf[from + item.start..from + item.end]);
                }
            }
            _ => {}
        }
        Ok(is_null)
    }

    fn produces(&self) -> Option<PgTypeInfo> {
        self.0.produces()
    }

    fn size_hint(&self) -> usize {
        self.0.size_hint()
    }
}

fn replace_in_text(buf: &mut Vec<u8>, from: usize) {
    if buf[from..].contains(&0) {
        let text = buf.split_off(from);
        push_without_nul(buf, &text);
    }
}

fn replace_in_text_array(buf: &mut Vec<u8>, from: usize) {
    let items = array_items(&buf[from..]);
    if !items.iter().any(|item| buf[from..][item.clone()].contains(&0)) {
        return;
    }
    let array = buf.split_off(from);
    let mut copied = 0;
    for item in items {
        // The length before the item.
        buf.extend_from_slice(&array[copied..item.start]);
        let at = buf.len();
        push_without_nul(buf, &array[item.clone()]);
        let length = i32::try_from(buf.len() - at).unwrap_or(i32::MAX);
        buf[at - 4..at].copy_from_slice(&length.to_be_bytes());
        copied = item.end;
    }
    buf.extend_from_slice(&array[copied..]);
}

fn push_without_nul(buf: &mut Vec<u8>, text: &[u8]) {
    for (n, part) in text.split(|byte| *byte == 0).enumerate() {
        if n > 0 {
            buf.extend_from_slice(REPLACEMENT.as_bytes());
        }
        buf.extend_from_slice(part);
    }
}

/// Replaces `\u0000` by an escape of the same length.
fn replace_in_json(json: &mut [u8]) {
    let mut at = 0;
    while let Some(found) = json[at..].iter().position(|byte| *byte == b'\\') {
        at += found;
        if json[at..].starts_with(br"\u0000") {
            json[at..at + 6].copy_from_slice(br"\ufffd");
        }
        // The escaped character may be a backslash, which escapes nothing.
        at = (at + 2).min(json.len());
    }
}

/// Returns the places of an array's items that are not null, in the binary format of Postgres: the
/// number of dimensions, flags, the items' type, two numbers for each dimension, and then each item
/// after its length. Each number has four bytes.
fn array_items(array: &[u8]) -> Vec<std::ops::Range<usize>> {
    let number = |at: usize| {
        let bytes = array.get(at..at + 4)?;
        Some(i32::from_be_bytes(bytes.try_into().ok()?))
    };
    let dimensions = number(0).and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
    let mut at = 12 + 8 * dimensions;
    let mut items = Vec::new();
    while let Some(length) = number(at) {
        at += 4;
        // A null has the length -1.
        if let Ok(length) = usize::try_from(length) {
            items.push(at..at + length);
            at += length;
        }
    }
    items
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_escaped_nul_is_replaced_in_json() {
        for text in ["a\0b", "\0", r"\u0000", "\\\0", r"\\u0000", "tail\\", "\u{1}\0\0"] {
            let mut json = serde_json::to_vec(text).unwrap();

            replace_in_json(&mut json);

            let read: String = serde_json::from_slice(&json).unwrap();
            assert_eq!(read, text.replace('\0', REPLACEMENT));
        }
    }
}
