/** Every route file of the server. */
import type { RouteModule } from '../app.ts';
import { auditRoutes } from './audit.ts';
import { authRoutes } from './auth.ts';
import { backupRoutes } from './backups.ts';
import { certificateRoutes } from './certificates.ts';
import { diskImportRoutes } from './disk-import.ts';
import { domainRoutes } from './domains.ts';
import { downloadRoutes } from './download.ts';
import { eventRoutes } from './events.ts';
import { guestOperationRoutes } from './guest-operations.ts';
import { guestRoutes } from './guests.ts';
import { isoRoutes } from './iso.ts';
import { libraryRoutes } from './library.ts';
import { multiManagerRoutes } from './multi-manager.ts';
import { nodeRoutes } from './nodes.ts';
import { notificationRoutes } from './notifications.ts';
import { overviewRoutes } from './overview.ts';
import { pageRoutes } from './pages.ts';
import { poolRoutes } from './pools.ts';
import { protectionRoutes } from './protection.ts';
import { scheduleRoutes } from './schedules.ts';
import { sessionRoutes } from './session.ts';
import { settingRoutes } from './settings.ts';
import { snapshotRoutes } from './snapshots.ts';
import { systemRoutes } from './system.ts';
import { tagRoutes } from './tags.ts';
import { taskRoutes } from './tasks.ts';
import { templateRoutes } from './templates.ts';
import { tokenRoutes } from './tokens.ts';
import { uploadRoutes } from './upload.ts';
import { userRoutes } from './users.ts';
import { vdiskRoutes } from './vdisks.ts';
import { wholeRoutes } from './whole.ts';

export const ROUTES: readonly RouteModule[] = [
  systemRoutes,
  overviewRoutes,
  authRoutes,
  sessionRoutes,
  tokenRoutes,
  userRoutes,
  taskRoutes,
  eventRoutes,
  auditRoutes,
  settingRoutes,
  nodeRoutes,
  wholeRoutes,
  certificateRoutes,
  poolRoutes,
  domainRoutes,
  multiManagerRoutes,
  protectionRoutes,
  snapshotRoutes,
  vdiskRoutes,
  templateRoutes,
  guestRoutes,
  guestOperationRoutes,
  backupRoutes,
  diskImportRoutes,
  libraryRoutes,
  downloadRoutes,
  isoRoutes,
  uploadRoutes,
  tagRoutes,
  scheduleRoutes,
  notificationRoutes,
  pageRoutes(),
];
