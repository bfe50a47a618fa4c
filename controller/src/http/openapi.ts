/** The API document: OpenAPI 3.1 made from the routes' own schemas, and its page. */
import { createRequire } from 'node:module';
import fastifySwagger from '@fastify/swagger';
import fastifySwaggerUi from '@fastify/swagger-ui';
import type { App } from './app.ts';

export const VERSION: string = (createRequire(import.meta.url)('../../package.json') as { version: string })
  .version;

const DESCRIPTION = `Backup, disk lending and guest-agent control for KVM virtual machines.

Log in at \`POST /auth/\` and send \`Authorization: jwt <token>\`. Every failure has the same shape (\`Error\`), and its
\`msg_key\` is stable. Actions that work on a node are tasks: with \`?async=1\` they answer 202 and the task at once.
\`async\` may be sent with every call and means nothing where there is no task. Lists refuse query fields that they do not know;
other calls ignore them.`;

/** Must be registered before the routes, so that it sees them. */
export async function registerOpenApi(app: App): Promise<void> {
  await app.register(fastifySwagger, {
    openapi: {
      openapi: '3.1.0',
      info: { title: 'virtkeep', version: VERSION, description: DESCRIPTION, license: { name: 'MIT' } },
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
    transformObject: document =>
      'openapiObject' in document ? relaxBodies(document.openapiObject) : document.swaggerObject,
  });
  await app.register(fastifySwaggerUi, { routePrefix: '/api/docs', staticCSP: false });
}

interface Operation {
  requestBody?: { required?: boolean; content?: Record<string, { schema?: { required?: string[] } }> };
}

/** A body all of whose fields are optional may be left out. */
function relaxBodies<T extends { paths?: object }>(document: T): T {
  for (const path of Object.values(document.paths ?? {})) {
    for (const { requestBody } of Object.values(path as Record<string, Operation>)) {
      const contents = Object.values(requestBody?.content ?? {});
      if (requestBody !== undefined) {
        requestBody.required = contents.some(content => (content.schema?.required ?? []).length > 0);
      }
    }
  }
  return document;
}
