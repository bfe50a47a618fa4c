/** A controller's REST server on an empty database in memory, with one user of each role; no socket, no node. */

import { mkdtempSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import type {} from '@fastify/swagger'; // adds swagger() to the App
import { VirtkeepError } from '@virtkeep/shared/errors';
import { createLogger, type Logger } from '@virtkeep/shared/log';
import { ROLES, type Role } from '@virtkeep/shared/permissions';
import { TokenSigner } from '../../../controller/src/auth/jwt.ts';
import { type ControllerConfig, configSchema } from '../../../controller/src/config.ts';
import type { App, RouteModule } from '../../../controller/src/http/app.ts';
import { ROUTES } from '../../../controller/src/http/routes/index.ts';
import { buildServer } from '../../../controller/src/http/server.ts';
import { type Keys, keyFiles } from '../../../controller/src/keys/keys.ts';
import { type CertificateAuthority, ensureCa } from '../../../controller/src/pki/index.ts';
import { createCoreServices } from '../../../controller/src/services/core.ts';
import { createNodeServices } from '../../../controller/src/services/node-services.ts';
import type { Clock } from '../../../controller/src/services/schedules/clock.ts';
import type { Services } from '../../../controller/src/services/services.ts';
import { openDatabase } from '../../../controller/src/store/database.ts';
import type { Database } from '../../../controller/src/store/schema.ts';
import type { DatabaseTarget } from '../../../controller/src/store/target.ts';
import { openTestDatabase } from '../../../controller/src/store/test-database.ts';
import { serverTls } from '../../../controller/src/tls.ts';
import { type ApiDocument, type ApiOperation, declaredKeys } from './api-document.ts';

/** What these tests need of ajv, which is a dependency of a dependency. */
interface Validator {
  addSchema(schema: object, key: string): void;
  compile(schema: object): { (data: unknown): boolean; errors?: unknown };
}

export const PASSWORD = 'correct horse battery';

export interface Answer {
  status: number;
  // biome-ignore lint/suspicious/noExplicitAny: tests look into JSON of any shape
  body: any;
  text: string;
  headers: Record<string, unknown>;
}

export interface CallOptions {
  /** Role whose integration token is sent, or a header's text as it stands; null sends none. Default administrator. */
  as?: Role | { header: string } | null;
  body?: unknown;
  /** Sent as it stands instead of `body`. */
  raw?: string | Buffer;
  headers?: Record<string, string>;
}

export interface RestApp {
  app: App;
  services: Services;
  signer: TokenSigner;
  keys: Keys;
  ca: CertificateAuthority;
  tokens: Record<Role, string>;
  userIds: Record<Role, string>;
  /** By which clients know them. */
  userNumbers: Record<Role, number>;
  draining: AbortController;
  /** Logs in as the user of this role; its header. */
  session: (role: Role) => Promise<{ header: string }>;
  /** Sends a request and holds its answer against the API document. */
  call: (method: string, url: string, options?: CallOptions) => Promise<Answer>;
  /** Ends all of the controller but its database, and starts it anew where it listened. */
  restart: (between?: () => Promise<void>) => Promise<void>;
  close: () => Promise<void>;
}

/** Nodes that vanish are tried again quickly, so that tests need not wait; loans are looked after, and notifications sent, when a test says so. */
export const NODE_TIMES = {
  firstRetryMs: 20,
  maxRetryMs: 100,
  connectTimeoutMs: 120_000,
  lendingRoundMs: 3_600_000,
};

/** Where a test wants to look itself. */
export interface RestAppOptions {
  /** One that outlives it; else an empty one that does not. */
  database?: DatabaseTarget;
  log?: Logger;
  /** The time by which schedules are kept, which then tick when the test says so; it passes without a jump. */
  clock?: Clock;
  /** So long after its loss a node is expected back; not at all when absent. */
  returnMs?: number;
  /** Those of the controller when absent. */
  routes?: readonly RouteModule[];
  /** Serves over TLS when it listens, with a certificate of its own authority. */
  isSecure?: boolean;
}

/** @param seed writes rows before the services read them. */
export async function makeRestApp(
  config: object = {},
  seed: (db: Database) => Promise<void> = async () => {},
  {
    database,
    log = createLogger('test', 'error'),
    clock,
    returnMs,
    routes = ROUTES,
    isSecure,
  }: RestAppOptions = {},
): Promise<RestApp> {
  const stateDir = mkdtempSync(join(tmpdir(), 'virtkeep-rest-'));
  const settings: ControllerConfig = configSchema.parse({
    state_dir: stateDir,
    // a machine that is busy with other tests is no reason to refuse
    limits: { requests_per_minute: 1_000_000, event_loop_delay_ms: 600_000 },
    ...config,
  });
  const db = database ? await openDatabase(database) : await openTestDatabase();
  const signer = new TokenSigner(Buffer.alloc(64, 7));
  const keys = keyFiles(stateDir);
  const ca = await ensureCa(keys);
  const makeServices = (draining: AbortController): Services => {
    const core = createCoreServices({ config: settings, log, db, signer, draining: draining.signal });
    const nodes = createNodeServices(
      core,
      { keys, ca },
      {
        ...NODE_TIMES,
        ...(returnMs !== undefined && { returnMs }),
        ticks: false,
        ...(clock && { clock, elapsedMs: () => clock.now().getTime() }),
      },
    );
    return { ...core, ...nodes };
  };
  const makeApp = async (services: Services) =>
    buildServer({ services, routes, tls: isSecure ? await serverTls(settings, ca) : undefined });
  const draining = new AbortController();
  const services = makeServices(draining);
  await seed(db);
  await services.startNodes();
  const { tokens, userIds, userNumbers } = await makeUsers(services);
  const app = await makeApp(services);
  documented ??= documentCheck(app.swagger() as unknown as ApiDocument);
  const check = documented;
  const rest: RestApp = {
    app,
    services,
    signer,
    keys,
    ca,
    tokens,
    userIds,
    userNumbers,
    draining,
    session: async role => {
      const { token } = await rest.services.tokens.login(`the-${role}`, PASSWORD, '127.0.0.1');
      return { header: `jwt ${token}` };
    },
    call: async (method, url, options = {}) => {
      // as a socket would; a row of requests without a turn of the event loop is taken for overload
      await setImmediate();
      const answer = await send(rest.app, tokens, { method, url }, options);
      check(method, url, answer);
      return answer;
    },
    restart: async (between = async () => {}) => {
      const address = rest.app.server.address() as AddressInfo | null;
      rest.draining.abort(new VirtkeepError('draining'));
      await rest.app.close();
      await rest.services.stopNodes();
      await between();
      rest.draining = new AbortController();
      rest.services = makeServices(rest.draining);
      await rest.services.startNodes();
      rest.app = await makeApp(rest.services);
      if (address !== null) await rest.app.listen({ host: address.address, port: address.port });
    },
    close: async () => {
      await rest.app.close();
      await rest.services.stopNodes();
      await db.destroy();
      rmSync(stateDir, { recursive: true });
      // a worker keeps the modules of its tests, and with them all that their variables hold
      rest.app = rest.services = undefined as never;
    },
  };
  return rest;
}

async function makeUsers(services: Services) {
  const tokens = {} as Record<Role, string>;
  const userIds = {} as Record<Role, string>;
  const userNumbers = {} as Record<Role, number>;
  for (const role of ROLES) {
    const user = await services.users.create({ username: `the-${role}`, password: PASSWORD, role });
    userIds[role] = (await services.users.row(user.id)).id;
    userNumbers[role] = user.id;
    tokens[role] = (await services.tokens.create(user.id, 'test', 1)).token;
  }
  return { tokens, userIds, userNumbers };
}

async function send(
  app: App,
  tokens: Record<Role, string>,
  { method, url }: { method: string; url: string },
  { as = 'administrator', body, raw, headers = {} }: CallOptions,
): Promise<Answer> {
  const authorization = as === null ? undefined : typeof as === 'string' ? `jwt ${tokens[as]}` : as.header;
  const payload = raw ?? (body === undefined ? undefined : JSON.stringify(body));
  const response = await app.inject({
    method: method as 'GET',
    url,
    headers: {
      ...(authorization === undefined ? {} : { authorization }),
      ...(payload === undefined ? {} : { 'content-type': 'application/json' }),
      ...headers,
    },
    ...(payload === undefined ? {} : { payload }),
  });
  const json = String(response.headers['content-type']).startsWith('application/json');
  return {
    status: response.statusCode,
    body: json ? JSON.parse(response.body) : undefined,
    text: response.body,
    headers: response.headers,
  };
}

const ajvRequire = createRequire(createRequire(import.meta.url).resolve('@fastify/ajv-compiler'));

/** All applications of a test have the same document. */
let documented: ReturnType<typeof documentCheck> | undefined;

/** Holds answers against the document: known status, right schema, the error envelope for every failure. */
export function documentCheck(document: ApiDocument) {
  const { default: Ajv } = ajvRequire('ajv/dist/2020.js') as {
    default: new (options: object) => Validator;
  };
  const ajv = new Ajv({ strict: false, validateFormats: false, allErrors: true });
  ajv.addSchema({ ...document, $id: 'api' }, 'api');
  const templateOf = templatesOf(document);
  const compiled = new Map<string, ReturnType<Validator['compile']>>();
  const validate = (pointer: string, value: unknown, place: string) => {
    const check = compiled.get(pointer) ?? ajv.compile({ $ref: `api#${pointer}` });
    compiled.set(pointer, check);
    if (!check(value)) throw new Error(`${place} does not fit the document: ${JSON.stringify(check.errors)}`);
  };
  const checkSuccess = (method: string, path: string, answer: Answer, place: string): void => {
    const key = String(answer.status);
    const response = document.paths[path]?.[method.toLowerCase()]?.responses[key];
    if (response === undefined) throw new Error(`${place} is not in the document`);
    if (response.content?.['application/json'] === undefined || answer.body === undefined) return;
    const parts = [
      'paths',
      path,
      method.toLowerCase(),
      'responses',
      key,
      'content',
      'application/json',
      'schema',
    ];
    validate(`/${parts.map(escapePointer).join('/')}`, answer.body, place);
  };
  return (method: string, url: string, answer: Answer): void => {
    const place = `${method} ${url} → ${answer.status}`;
    const path = templateOf(url);
    if (answer.status >= 400) {
      validate('/components/schemas/Error', answer.body, place);
      checkErrors(document.paths[path ?? '']?.[method.toLowerCase()], answer, place);
    } else if (path !== undefined) checkSuccess(method, path, answer, place);
  };
}

/** An operation answers no other errors than it says. */
function checkErrors(operation: ApiOperation | undefined, { status, body }: Answer, place: string): void {
  if (operation === undefined) return;
  const { errors } = body as { errors: { msg_key: string }[] };
  const declared = declaredKeys(operation, status);
  const others = errors.map(({ msg_key: key }) => key).filter(key => !declared.includes(key));
  if (others.length > 0) throw new Error(`${place} answers ${others}, which the document does not say`);
}

function escapePointer(part: string): string {
  return encodeURIComponent(part.replaceAll('~', '~0').replaceAll('/', '~1'));
}

/** Tells the document's path for a URL; fixed segments win over parameters. */
function templatesOf(document: ApiDocument): (url: string) => string | undefined {
  const templates = Object.keys(document.paths)
    .map(template => {
      const text = template
        .replace(/\/$/, '')
        .replace(/[.*+?^$()|[\]\\]/g, '\\$&')
        .replace(/\{[^}]+\}/g, '[^/]+');
      return { template, pattern: new RegExp(`^${text}$`) };
    })
    .toSorted((a, b) => a.template.split('{').length - b.template.split('{').length);
  return url => {
    const path = url.split('?')[0]!.replace(/\/?$/, '');
    return templates.find(({ pattern }) => pattern.test(path))?.template;
  };
}
