import { VirtkeepError } from '@virtkeep/shared/errors';
import type { Logger } from '@virtkeep/shared/log';
import { systemdNotifier } from '@virtkeep/shared/systemd';
import { openTokenSigner } from './auth/jwt.ts';
import type { ControllerConfig } from './config.ts';
import { databaseTarget } from './database-target.ts';
import { ensureAdministrator } from './first-administrator.ts';
import type { App } from './http/app.ts';
import { ROUTES } from './http/routes/index.ts';
import { buildServer } from './http/server.ts';
import { startJanitor } from './janitor.ts';
import { ensureCa } from './pki/index.ts';
import { createCoreServices } from './services/core.ts';
import { createNodeServices } from './services/node-services.ts';
import { Shutdown } from './shutdown.ts';
import { openDatabase } from './store/database.ts';
import { SERVING } from './store/served.ts';
import { serverTls } from './tls.ts';

/**
 * Runs the controller until it is told to stop: database, keys, services, HTTP, nodes, in this order.
 * @throws ConfigError; the error of the listening socket.
 */
export async function serve(config: ControllerConfig, log: Logger): Promise<void> {
  const notifier = systemdNotifier();
  const draining = new AbortController();
  const db = await openDatabase(await databaseTarget(config, SERVING));
  const ca = await ensureCa(config.state_dir);
  const signer = await openTokenSigner(config.state_dir);
  const core = createCoreServices({ config, log, db, signer, draining: draining.signal });
  const services = { ...core, ...createNodeServices(core, ca) };
  await ensureAdministrator(services);
  await services.load();
  const stopJanitor = startJanitor(services);
  const app = await buildServer({ services, routes: ROUTES, tls: await serverTls(config, ca) });

  const shutdown = new Shutdown({
    log,
    drainTimeoutMs: config.shutdown_drain_s * 1000,
    drain: async () => {
      notifier.stopping();
      draining.abort(new VirtkeepError('draining'));
      await app.close();
    },
    close: async () => {
      app.server.closeAllConnections();
      await services.stopNodes();
      await stopJanitor();
      await db.destroy();
    },
  });
  for (const name of ['SIGTERM', 'SIGINT'] as const) process.on(name, () => shutdown.signal(name));
  await listen(app, config, log);
  notifier.ready();
  // who listens answers while a thousand nodes are taken over
  await services.startNodes();
  await shutdown.stopped;
  notifier.close();
}

async function listen(app: App, config: ControllerConfig, log: Logger): Promise<void> {
  const address = await app.listen({ host: config.listen.host, port: config.listen.port });
  log.info('controller is serving', { address, tls: config.tls.mode });
}
