import type { Logger } from '@virtkeep/shared/log';
import { type Acting, ALONE } from '../agents/acting.ts';
import type { TokenSigner } from '../auth/jwt.ts';
import type { ControllerConfig } from '../config.ts';
import type { Database } from '../store/schema.ts';
import { PasswordChecks } from './accounts/password-checks.ts';
import { SessionService } from './accounts/sessions.ts';
import { TokenService } from './accounts/tokens.ts';
import { UserService } from './accounts/users.ts';
import { AuditService } from './journal/audit.ts';
import { ChangeFeed } from './journal/changes.ts';
import { EventService } from './journal/events.ts';
import { MetricSources } from './monitoring/sources.ts';
import { NotificationService } from './notifications/notifications.ts';
import type { CoreServices } from './services.ts';
import { SettingService, withOwnSections } from './settings/settings.ts';
import { IdempotencyService } from './tasks/idempotency.ts';
import { TaskService } from './tasks/tasks.ts';

export interface CoreDependencies {
  config: ControllerConfig;
  log: Logger;
  db: Database;
  signer: TokenSigner;
  draining: AbortSignal;
  /** Absent: the controller is alone. */
  acting?: Acting;
}

/** The services that need no node. */
export function createCoreServices(dependencies: CoreDependencies): CoreServices {
  const { log, db, signer, draining, acting = ALONE } = dependencies;
  const config = withOwnSections(dependencies.config);
  const changes = new ChangeFeed();
  const events = new EventService(db, changes);
  const users = new UserService(db);
  const passwords = new PasswordChecks(db, users);
  const notifications = new NotificationService({
    db,
    key: signer.derivedKey('notification targets'),
    events,
    log: log.child({ part: 'notifications' }),
    publicUrl: config.api.public_url,
  });
  const sessions = new SessionService(db);
  const metricSources = new MetricSources();
  metricSources.setNotifications(notifications.outbox);
  return {
    config,
    log,
    db,
    draining,
    acting,
    changes,
    metricSources,
    events,
    users,
    passwords,
    sessions,
    tasks: new TaskService(db, changes, events),
    tokens: new TokenService({
      db,
      users,
      signer,
      passwords,
      sessions,
      lifetimeMs: config.auth.token_lifetime_s * 1000,
    }),
    audit: new AuditService(db, config.keep),
    settings: new SettingService({ db, config, log }),
    notifications,
    idempotency: new IdempotencyService(
      db,
      signer.derivedKey('idempotency'),
      () => config.limits.idempotency_keys_per_user,
    ),
  };
}
