import type { Logger } from '@virtkeep/shared/log';
import type { TokenSigner } from '../auth/jwt.ts';
import type { ControllerConfig } from '../config.ts';
import type { Database } from '../store/schema.ts';
import { AuditService } from './audit.ts';
import { ChangeFeed } from './changes.ts';
import { EventService } from './events.ts';
import { IdempotencyService } from './idempotency.ts';
import { PasswordChecks } from './password-checks.ts';
import type { CoreServices } from './services.ts';
import { TaskService } from './tasks.ts';
import { TokenService } from './tokens.ts';
import { UserService } from './users.ts';

export interface CoreDeps {
  config: ControllerConfig;
  log: Logger;
  db: Database;
  signer: TokenSigner;
  draining: AbortSignal;
}

/** The services that need no node. */
export function createCoreServices({ config, log, db, signer, draining }: CoreDeps): CoreServices {
  const changes = new ChangeFeed();
  const events = new EventService(db, changes);
  const users = new UserService(db);
  const passwords = new PasswordChecks(db, users);
  return {
    config,
    log,
    db,
    draining,
    changes,
    events,
    users,
    passwords,
    tasks: new TaskService(db, changes, events),
    tokens: new TokenService({
      db,
      users,
      signer,
      passwords,
      lifetimeMs: config.auth.token_lifetime_s * 1000,
    }),
    audit: new AuditService(db, config.keep),
    idempotency: new IdempotencyService(
      db,
      signer.derivedKey('idempotency'),
      () => config.limits.idempotency_keys_per_user,
    ),
  };
}
