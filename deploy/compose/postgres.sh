#!/bin/sh
# What `docker-compose.yml` needs before the first migration: the services' login, which owns
# nothing and has a password of its own. The migrations make it a member of their two roles.
set -eu
psql --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" --set ON_ERROR_STOP=1 \
    --set password="$HOLDFAST_BACKEND_PASSWORD" <<'SQL'
create role holdfast login password :'password';
SQL
