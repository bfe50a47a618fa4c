import type { Server } from 'node:https';
import type { AddressInfo } from 'node:net';
import { StartAgain } from '@virtkeep/shared/daemon-cli';
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { Logger } from '@virtkeep/shared/log';
import { systemdNotifier } from '@virtkeep/shared/systemd';
import { openTokenSigner } from './auth/jwt.ts';
import { actAlone } from './cluster/alone.ts';
import { awaitTurn, type Turn } from './cluster/member.ts';
import { FORWARDER_ADDRESS, listenForPeers } from './cluster/peer-server.ts';
import type { ControllerConfig } from './config.ts';
import { databaseTarget } from './database-target.ts';
import { ensureAdministrator } from './first-administrator.ts';
import type { App } from './http/app.ts';
import { connectionEnder } from './http/connections.ts';
import { ROUTES } from './http/routes/index.ts';
import { buildServer } from './http/server.ts';
import { startJanitor } from './janitor.ts';
import { openKeys } from './keys/open-keys.ts';
import { openAuthority } from './pki/index.ts';
import { createCoreServices } from './services/core.ts';
import { createNodeServices } from './services/node-services.ts';
import { Shutdown } from './shutdown.ts';
import { openDatabase } from './store/database.ts';
import { openPostgres } from './store/postgres.ts';
import type { Database } from './store/schema.ts';
import type { DatabaseTarget } from './store/target.ts';
import { followCertificate, serverTls } from './tls.ts';

const NODES_FIRST_MS = 5000;
const SIGNALS = ['SIGTERM', 'SIGINT'] as const;

/**
 * Runs the controller until it is told to stop: database, keys, services, HTTP, nodes, in this order. One of several on a PostgreSQL
 * database stands by before that, until its turn comes.
 * @throws ConfigError; the error of a listening socket; StartAgain when it has given its turn to another one
 */
export async function serve(config: ControllerConfig, log: Logger): Promise<void> {
  const notifier = systemdNotifier();
  const target = await databaseTarget(config);
  if (target.kind === 'sqlite') return act({ config, log, notifier, target });
  const stopping = new AbortController();
  const hurry = new AbortController();
  const stop = () => (stopping.signal.aborted ? hurry : stopping).abort();
  for (const name of SIGNALS) process.on(name, stop);
  const joined = () => notifier.ready();
  const turn = await awaitTurn({ config, target, log, joined, hurry: hurry.signal }, stopping.signal);
  // from here on until it serves, a signal ends the process as it would anywhere; the others wait for the end of the lease
  for (const name of SIGNALS) process.off(name, stop);
  if (turn && !stopping.signal.aborted) return act({ config, log, notifier, target: turn.target, turn });
  await turn?.end();
  notifier.close();
}

interface Start {
  config: ControllerConfig;
  log: Logger;
  notifier: ReturnType<typeof systemdNotifier>;
  target: DatabaseTarget;
  /** Absent: this controller is alone. */
  turn?: Turn;
}

async function act({ config, log, notifier, target, turn }: Start): Promise<void> {
  const draining = new AbortController();
  const db = await openToServe(target);
  const keys = await openKeys(config, db);
  const ca = await openAuthority(config.state_dir, keys);
  const signer = await openTokenSigner(keys);
  const acting = turn?.lease ?? (await actAlone(config.state_dir, log));
  const core = createCoreServices({ config, log, db, signer, draining: draining.signal, acting });
  const services = { ...core, ...createNodeServices(core, { keys, ca }) };
  await ensureAdministrator(services);
  await services.load();
  const stopJanitor = startJanitor(services);
  const forwarders = turn ? [FORWARDER_ADDRESS] : [];
  const tls = await serverTls(config, ca);
  const app = await buildServer({ services, routes: ROUTES, tls, forwarders });
  followCertificate(app.server, tls, () => serverTls(config, ca), log);
  const endConnections = connectionEnder(app.server);
  const peers = turn && (await listenForPeers({ config, log, ca, handle: app.routing }));

  const shutdown = new Shutdown({
    log,
    drainTimeoutMs: config.shutdown_drain_s * 1000,
    drain: async () => {
      notifier.stopping();
      // what comes to the others waits for the next one by then
      await turn?.yield();
      draining.abort(new VirtkeepError('draining'));
      const closed = [app.close(), ...(turn && peers ? [turn.drain(), close(peers)] : [])];
      endConnections();
      await Promise.all(closed);
    },
    close: async () => {
      app.server.closeAllConnections();
      peers?.closeAllConnections();
      await services.stopNodes();
      await stopJanitor();
      await services.audit.settled();
      await db.destroy();
      await turn?.end();
    },
  });
  for (const name of SIGNALS) process.on(name, () => shutdown.signal(name));
  let startAgain: string | undefined;
  if (turn && peers) {
    // what comes to any of them waits until nodes are there again, as far as they come soon
    await services.startNodes();
    await services.nodesSettled(NODES_FIRST_MS);
    turn.watchReach(services.nodesReach, reason => {
      if (shutdown.stop(reason)) startAgain = reason;
    });
    if (shutdown.isServing) await turn.begin(config, (peers.address() as AddressInfo).port);
  }
  // a signal may have come meanwhile: what has ended does not begin
  if (shutdown.isServing) {
    await listen(app, config, log, turn);
    notifier.ready();
  }
  // one that is alone answers while a thousand nodes are taken over
  if (!turn && shutdown.isServing) await services.startNodes();
  await shutdown.stopped;
  notifier.close();
  if (startAgain !== undefined) throw new StartAgain(startAgain);
}

/** Migrations take their time; afterwards whatever takes long on PostgreSQL is stuck. */
async function openToServe(target: DatabaseTarget): Promise<Database> {
  const db = await openDatabase(target);
  if (target.kind === 'sqlite') return db;
  await db.destroy();
  return openPostgres({ ...target, isBrief: true });
}

function close(server: Server): Promise<void> {
  return new Promise(resolve => {
    server.close(() => resolve());
    server.closeIdleConnections();
  });
}

/** Fastify need not know that the socket is another server's: it closes its own server all the same. */
async function listen(app: App, { listen, tls }: ControllerConfig, log: Logger, turn?: Turn): Promise<void> {
  if (!(await turn?.giveSocketTo(app.server))) await app.listen({ host: listen.host, port: listen.port });
  log.info('controller is serving', { address: app.server.address(), tls: tls.mode });
}
