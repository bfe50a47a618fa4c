/** The API document as the controller of these sources answers it, made without a node, a socket or a state that stays. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type {} from '@fastify/swagger'; // adds swagger() to the server
import { createLogger } from '@virtkeep/shared/log';
import { openTokenSigner } from '../controller/src/auth/jwt.ts';
import { configSchema } from '../controller/src/config.ts';
import { ROUTES } from '../controller/src/http/routes/index.ts';
import { buildServer } from '../controller/src/http/server.ts';
import { keyFiles } from '../controller/src/keys/keys.ts';
import { ensureCa } from '../controller/src/pki/index.ts';
import { createCoreServices } from '../controller/src/services/core.ts';
import { createNodeServices } from '../controller/src/services/node-services.ts';
import { openDatabase } from '../controller/src/store/database.ts';

/** OpenAPI 3.1 as JSON. */
export async function apiDocument(): Promise<string> {
  const stateDir = mkdtempSync(join(tmpdir(), 'virtkeep-document-'));
  const keys = keyFiles(stateDir);
  const db = await openDatabase({ kind: 'sqlite', path: ':memory:' });
  try {
    const core = createCoreServices({
      config: configSchema.parse({ state_dir: stateDir }),
      log: createLogger('document', 'error'),
      db,
      signer: await openTokenSigner(keys),
      draining: new AbortController().signal,
    });
    const services = { ...core, ...createNodeServices(core, { keys, ca: await ensureCa(keys) }) };
    const app = await buildServer({ services, routes: ROUTES });
    const document = JSON.stringify(app.swagger());
    await app.close();
    return document;
  } finally {
    await db.destroy();
    rmSync(stateDir, { recursive: true });
  }
}
