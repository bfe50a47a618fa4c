/** The API document: OpenAPI 3.1 made from the routes' own schemas, and its page. */
import { createRequire } from 'node:module';
import fastifySwagger from '@fastify/swagger';
import fastifySwaggerUi from '@fastify/swagger-ui';
import type { ErrorKey } from '@virtkeep/shared/errors';
import type { App } from './app.ts';
import { errorAnswers, errorExamples } from './document/error-answers.ts';
import { type ExampleSchema, exampleOf } from './document/examples.ts';
import { operationId } from './document/operation-ids.ts';

export const VERSION: string = (createRequire(import.meta.url)('../../package.json') as { version: string })
  .version;

const DESCRIPTION = `Backup, disk lending and guest-agent control for KVM virtual machines.

Log in at \`POST /auth/\` and send \`Authorization: jwt <token>\`. Every failure has the same shape (\`Error\`), and its
\`msg_key\` is stable; each call names the keys that it may answer. Actions that work on a node are tasks: with \`?async=1\` they
answer 202 and the task as soon as it has begun, and its error is one of those that the call would answer. When the node was lost a moment ago, the
answer waits for up to half a minute until it is back.
\`async\` may be sent with every call and means nothing where there is no task. Lists refuse query fields that they do not know;
other calls ignore them. Ids are UUIDs in lower case; in requests capitals mean the same, and an optional one that is empty counts
as absent. Times are RFC 3339 in UTC, sizes are bytes.`;

const TAGS: Readonly<Record<string, string>> = {
  system: 'What the controller says of itself',
  auth: 'Logins and tokens',
  users: 'Who may log in',
  tasks: 'Long actions: how far they are, and their results',
  events: 'What happened, and what changes',
  audit: 'Who changed what',
  nodes: 'Hypervisor nodes',
  clusters: 'The one cluster, for clients that begin there',
  'resource pools': 'The one resource pool, for clients that begin there',
  certificates: 'By which nodes, services and the controller know each other',
  'data pools': 'Where disks and backup files lie',
  domains: 'VMs',
  snapshots: 'Saved states of VMs',
  vdisks: 'Disks, and lending them to other VMs',
  templates: 'Templates and clones',
  guests: 'The agents in VMs, and operations inside of them',
  backups: 'Backing up and restoring VMs',
  library: 'Backup files',
  iso: 'ISO images of data pools',
  protection: 'How well VMs are protected by their backups',
  tags: 'Names that things bear to be found by',
};

/** Must be registered before the routes, so that it sees them. */
export async function registerOpenApi(app: App): Promise<void> {
  await app.register(fastifySwagger, {
    openapi: {
      openapi: '3.1.0',
      info: {
        title: 'virtkeep',
        version: VERSION,
        description: DESCRIPTION,
        license: { name: 'MIT', identifier: 'MIT' } as never,
      },
      servers: [{ url: '/', description: 'the controller that answers this document' }],
      tags: Object.entries(TAGS).map(([name, description]) => ({ name, description })),
      components: {
        securitySchemes: {
          token: {
            type: 'apiKey',
            in: 'header',
            name: 'Authorization',
            description: '`jwt <token>`; `Bearer <token>` is accepted too',
          },
        },
      },
    },
    refResolver: { buildLocalReference: json => String(json.$id) },
    hideUntagged: true,
    transformObject: document => {
      if ('openapiObject' in document) complete(document.openapiObject as unknown as Document);
      return 'openapiObject' in document ? document.openapiObject : document.swaggerObject;
    },
  });
  await app.register(fastifySwaggerUi, { routePrefix: '/api/docs', staticCSP: false });
}

interface Media {
  schema?: ExampleSchema & { title?: string; required?: string[] };
  example?: unknown;
}

interface Operation {
  'x-error-keys'?: readonly ErrorKey[];
  operationId?: string;
  parameters?: { name: string; in: string }[];
  security?: object[];
  requestBody?: { required?: boolean; content?: Record<string, Media> };
  responses: Record<string, { content?: Record<string, Media> }>;
}

interface Document {
  paths: Record<string, Record<string, Operation>>;
  components: { schemas: Record<string, ExampleSchema>; examples?: object };
}

/** Adds what follows from the rest: names of operations and of their bodies and answers, examples of answers, errors. */
function complete({ paths, components }: Document): void {
  const allKeys = new Set<ErrorKey>();
  for (const [path, methods] of Object.entries(paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      const isList = operation.parameters?.some(({ name }) => name === 'limit') ?? false;
      operation.operationId ??= operationId({ method, path, isList, isReadable: methods.get !== undefined });
      // nobody needs a token where none is asked for
      operation.security ??= [];
      relaxBody(operation);
      nameShapes(operation);
      for (const { content } of Object.values(operation.responses))
        giveExample(content?.['application/json'], components.schemas);
      const keys = operation['x-error-keys'] ?? [];
      for (const key of keys) allKeys.add(key);
      Object.assign(operation.responses, errorAnswers(keys));
      delete operation['x-error-keys'];
    }
  }
  components.examples = errorExamples(allKeys);
}

/** A body all of whose fields are optional may be left out. */
function relaxBody({ requestBody }: Operation): void {
  if (requestBody === undefined) return;
  requestBody.required = Object.values(requestBody.content ?? {}).some(
    ({ schema }) => (schema?.required ?? []).length > 0,
  );
}

/** What is written out where it is used gets a title: generators of clients name its class by it, others by a number. */
function nameShapes({ operationId: name = '', requestBody, responses }: Operation): void {
  const title = name.replaceAll(/(?:^|_)([a-z0-9])/g, (_, first: string) => first.toUpperCase());
  for (const media of Object.values(requestBody?.content ?? {})) nameShape(media, `${title}Body`);
  for (const { content } of Object.values(responses))
    for (const media of Object.values(content ?? {})) nameShape(media, `${title}Answer`);
}

function nameShape(media: Media, title: string): void {
  if (media.schema?.properties !== undefined) media.schema = { title, ...media.schema };
}

function giveExample(media: Media | undefined, records: Document['components']['schemas']): void {
  if (media?.schema === undefined || media.example !== undefined) return;
  const example = exampleOf(media.schema, records);
  if (example !== undefined) media.example = example;
}
