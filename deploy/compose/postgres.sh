#!/bin/sh
# Logins that `docker-compose.yml` needs before the first migration: `holdfast` for the setup, and
# one for each service. They own nothing; the migrations say what each may do.
set -eu
psql --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" --set ON_ERROR_STOP=1 \
    --set setup="$HOLDFAST_SETUP_PASSWORD" --set gateway="$HOLDFAST_GATEWAY_PASSWORD" \
    --set runner="$HOLDFAST_RUNNER_PASSWORD" --set scheduler="$HOLDFAST_SCHEDULER_PASSWORD" \
    --set memory="$HOLDFAST_MEMORY_PASSWORD" --set bridge="$HOLDFAST_BRIDGE_PASSWORD" <<'SQL'
create role holdfast login password :'setup';
create role holdfast_gateway login password :'gateway';
create role holdfast_runner login password :'runner';
create role holdfast_scheduler login password :'scheduler';
create role holdfast_memory login password :'memory';
create role holdfast_bridge login password :'bridge';
SQL
