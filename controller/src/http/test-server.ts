/** For unit tests: a server with given routes on a database in memory, and a token of an administrator. */
import { createLogger } from '@virtkeep/shared/log';
import { TokenSigner } from '../auth/jwt.ts';
import { configSchema } from '../config.ts';
import { createCoreServices } from '../services/core.ts';
import type { Services } from '../services/services.ts';
import { openTestDatabase } from '../store/test-database.ts';
import type { App, RouteModule } from './app.ts';
import { buildServer } from './server.ts';

export interface TestServer {
  app: App;
  services: Services;
  authorization: string;
  userId: string;
  draining: AbortController;
  close: () => Promise<void>;
}

export async function testServer(
  routes: RouteModule[],
  { limits = {}, ...config }: { limits?: object; [setting: string]: unknown } = {},
): Promise<TestServer> {
  const db = await openTestDatabase();
  const draining = new AbortController();
  const core = createCoreServices({
    // a machine that is busy with other tests is no reason to refuse
    config: configSchema.parse({ ...config, limits: { event_loop_delay_ms: 600_000, ...limits } }),
    log: createLogger('test', 'error'),
    db,
    signer: new TokenSigner(Buffer.alloc(64, 1)),
    draining: draining.signal,
  });
  const user = await core.users.create({
    username: 'root',
    password: 'long enough 1',
    role: 'administrator',
  });
  const { token } = await core.tokens.create(user.id, 'test', 1);
  const services = core as Services;
  const app = await buildServer({ services, routes });
  return {
    app,
    services,
    authorization: `jwt ${token}`,
    userId: (await core.users.row(user.id)).id,
    draining,
    close: async () => {
      await app.close();
      await db.destroy();
    },
  };
}
