-- OAuth credentials are renewed by themselves (RFC 6749, section 6).

alter table control.auth_profiles
    -- Where a refresh token is exchanged, and as which client; null is not renewed. The client's
    -- secret, if it has one, is sealed with the tokens.
    add column token_url text check (length(token_url) <= 2000),
    add column client_id text check (length(client_id) <= 500),
    -- Moves with whatever is presented: who renewed a version that is no more is passed over. What
    -- is removed and added again begins later than it ended, so the first one is a moment.
    add column version bigint not null default (extract(epoch from clock_timestamp()) * 1000)::bigint,
    -- Somebody exchanges the refresh token, or had better not try again, until then.
    add column renewing_until timestamptz,
    -- Why a person has to sign in again; null is no trouble.
    add column trouble text check (length(trouble) <= 64),
    add constraint auth_profiles_renewal
        check (token_url is null or (kind = 'oauth' and client_id is not null));
