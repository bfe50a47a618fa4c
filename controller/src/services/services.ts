/** Everything the routes may use; made once in main (or a test) and handed down. */
import type { Logger } from '@virtkeep/shared/log';
import type { ControllerConfig } from '../config.ts';
import type { Database } from '../store/schema.ts';
import type { PasswordChecks } from './accounts/password-checks.ts';
import type { TokenService } from './accounts/tokens.ts';
import type { UserService } from './accounts/users.ts';
import type { AuditService } from './journal/audit.ts';
import type { ChangeFeed } from './journal/changes.ts';
import type { EventService } from './journal/events.ts';
import type { NodeServices } from './node-services.ts';
import type { IdempotencyService } from './tasks/idempotency.ts';
import type { TaskService } from './tasks/tasks.ts';

export interface CoreServices {
  config: ControllerConfig;
  log: Logger;
  db: Database;
  changes: ChangeFeed;
  events: EventService;
  tasks: TaskService;
  users: UserService;
  passwords: PasswordChecks;
  tokens: TokenService;
  audit: AuditService;
  idempotency: IdempotencyService;
  /** Fires when the controller begins to stop: waiting answers turn into 202, new changes are refused. */
  draining: AbortSignal;
}

export interface Services extends CoreServices, NodeServices {}
