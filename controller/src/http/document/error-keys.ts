/**
 * Which errors a route may answer: those that follow from what it declares (who may call it, its ids, query, body), and its own
 * (`config.errors`). Pure.
 */
import { ERRORS, type ErrorKey, httpStatusOf } from '@virtkeep/shared/errors';
import { ROLES, roleAllows } from '@virtkeep/shared/permissions';
import type { RouteOptions } from 'fastify';
import { keepsKey } from '../keeps-key.ts';
import { NODE_WORK } from '../node-errors.ts';
import { GIVEN_UUID_PATTERN } from '../schemas/common.ts';

interface Schema {
  type?: string;
  pattern?: string;
  additionalProperties?: unknown;
  required?: readonly string[];
  properties?: Readonly<Record<string, Schema>>;
  items?: Schema;
  anyOf?: readonly Schema[];
}

const ALWAYS: readonly ErrorKey[] = [
  'bad_request',
  'overloaded',
  'database_unavailable',
  'no_controller',
  'controller_changed',
  'internal',
];
/** Of a call that asks who calls. */
export const LOGIN_ERRORS: readonly ErrorKey[] = [
  'login_required',
  'token_expired',
  'token_invalid',
  'token_revoked',
];
const OF_BODY: readonly ErrorKey[] = [
  'broken_json',
  'body_too_large',
  'unsupported_media_type',
  'invalid_field',
];

/** What `:id` names, by the resource of the path. */
const NO_SUCH_RESOURCE: Readonly<Record<string, ErrorKey>> = {
  domains: 'domain_not_found',
  nodes: 'node_not_found',
  'data-pools': 'pool_not_found',
  vdisks: 'vdisk_not_found',
  library: 'file_not_found',
  tasks: 'task_not_found',
  events: 'event_not_found',
  users: 'user_not_found',
  tokens: 'token_not_found',
  tags: 'tag_not_found',
  iso: 'iso_not_found',
  'notification-targets': 'notification_target_not_found',
  notifications: 'notification_not_found',
  clusters: 'not_found',
  'resource-pools': 'not_found',
};

/** What an id in a body, or beside `:id` in a path, names. */
const NO_SUCH_THING: Readonly<Record<string, ErrorKey>> = {
  domain: 'domain_not_found',
  entity_ids: 'domain_not_found',
  node: 'node_not_found',
  replace: 'node_not_found',
  datapool: 'pool_not_found',
  base_datapool: 'pool_not_found',
  vdisk: 'vdisk_not_found',
  exclude_vdisks: 'vdisk_not_found',
  boot_disk: 'vdisk_not_found',
  file: 'file_not_found',
  backup: 'file_not_found',
  snapshot: 'snapshot_not_found',
  user: 'user_not_found',
  session: 'session_not_found',
  entity_uuid: 'entity_not_found',
};

/** All keys in the order in which they are told: by status, then by name. */
const IN_ORDER = (Object.keys(ERRORS) as ErrorKey[]).toSorted(
  (a, b) => httpStatusOf(a) - httpStatusOf(b) || (a < b ? -1 : 1),
);

/** By status, then by name, each once. */
export function errorKeysOf(route: RouteOptions): ErrorKey[] {
  const keys = new Set<ErrorKey>([
    ...ALWAYS,
    ...ofAccess(route),
    ...ofPath(route),
    ...ofQuery((route.schema?.querystring ?? {}) as Schema),
    ...ofBody(route),
    ...(route.config?.longAction ? NODE_WORK : []),
    ...(route.config?.errors ?? []),
  ]);
  return IN_ORDER.filter(key => keys.has(key));
}

function ofAccess({ config = {}, method }: RouteOptions): ErrorKey[] {
  const { access, session, rateLimit } = config;
  const asksForLogin = access !== 'public';
  const isDenied =
    asksForLogin &&
    access !== 'login' &&
    access !== undefined &&
    ROLES.some(role => !roleAllows(role, access));
  return [
    ...(asksForLogin ? LOGIN_ERRORS : []),
    ...(isDenied ? (['permission_denied'] as const) : []),
    ...(session ? (['session_required'] as const) : []),
    ...(rateLimit === false ? [] : (['too_many_requests'] as const)),
    ...([method].flat().includes('GET') ? [] : (['draining'] as const)),
  ];
}

function ofPath({ url, schema }: RouteOptions): ErrorKey[] {
  const { properties = {} } = (schema?.params ?? {}) as Schema;
  const resource = url.split('/').find(part => Object.hasOwn(NO_SUCH_RESOURCE, part)) ?? '';
  return Object.entries(properties).flatMap(([name, property]) => [
    isId(property) ? 'invalid_uuid' : 'invalid_field',
    ...present(name === 'id' ? NO_SUCH_RESOURCE[resource] : NO_SUCH_THING[name]),
  ]);
}

function ofQuery({ properties = {} }: Schema): ErrorKey[] {
  const isList = Object.hasOwn(properties, 'limit');
  return [
    ...(Object.keys(properties).length > 0 ? (['invalid_field'] as const) : []),
    ...(below({ properties }).some(isId) ? (['invalid_uuid'] as const) : []),
    ...(isList ? (['unknown_field', 'unknown_ordering'] as const) : []),
  ];
}

function ofBody({ schema, config }: RouteOptions): ErrorKey[] {
  const body = schema?.body as Schema | undefined;
  if (body?.properties === undefined) return [];
  const all = [body, ...below(body)];
  return [
    ...OF_BODY,
    ...(all.some(part => part.additionalProperties === false) ? (['unknown_field'] as const) : []),
    ...(all.some(part => (part.required ?? []).length > 0) ? (['missing_field'] as const) : []),
    ...(all.some(isId) ? (['invalid_uuid'] as const) : []),
    ...(keepsKey(config) ? (['idempotency_conflict', 'idempotency_answer_gone'] as const) : []),
    ...all.flatMap(({ properties = {} }) =>
      Object.entries(properties).flatMap(([name, property]) =>
        [property, ...below(property)].some(isId) ? present(NO_SUCH_THING[name]) : [],
      ),
    ),
  ];
}

/** Every schema inside of one. */
function below(schema: Schema): Schema[] {
  const parts = [
    ...Object.values(schema.properties ?? {}),
    ...(schema.items ? [schema.items] : []),
    ...(schema.anyOf ?? []),
  ];
  return parts.flatMap(part => [part, ...below(part)]);
}

function isId({ pattern }: Schema): boolean {
  return pattern === GIVEN_UUID_PATTERN;
}

function present(key: ErrorKey | undefined): ErrorKey[] {
  return key === undefined ? [] : [key];
}
