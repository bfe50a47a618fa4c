/**
 * Who may call what. A method needs a permission of the table that REST uses as well, so a service over gRPC may do what
 * a user of the same role may over REST. What no user does (the controller's own business with the node), and what only the
 * controller can judge, is the controller's alone. A method that is not here may be called by nobody.
 */
import { type GuestPermission, guestPermission } from '@virtkeep/shared/guest-classes';
import { type Permission, roleAllows, SERVICE_ROLES } from '@virtkeep/shared/permissions';

/** Of the peers; the controller may call everything. */
export const ROLES = [...SERVICE_ROLES, 'controller'] as const;
export type Role = (typeof ROLES)[number];

/** What a method needs; where REST narrows by what is asked, so does this. */
export type Need = Permission | 'controller' | ((request: never) => Permission | 'controller');

const forGuestCommand = ({ command }: { command: string }): GuestPermission => guestPermission(command);
const forGuestInfo = ({ refresh }: { refresh: boolean }) => (refresh ? 'guest.read' : 'domain.read');
/** Where a disk of another node lies the controller says, which asked that node: whoever else named a file could read all of a pool. */
const forAttach = ({ source }: { source?: unknown }) => (source ? 'controller' : 'vdisk.attach');

/** One that is refused is as good as cancelled. */
const forOperation = ({ refuseUnknown }: { refuseUnknown: boolean }) =>
  refuseUnknown ? 'task.cancel' : 'task.read';

const forRestore = ({ allowForeign }: { allowForeign: boolean }) =>
  allowForeign ? 'backup.restore_foreign' : 'backup.restore';

/** By the service's full name and the method's name in the proto. */
export const NEEDS: Record<string, Record<string, Need>> = {
  'virtkeep.agent.v1.OperationService': {
    Get: forOperation,
    List: 'task.read',
    Watch: 'task.read',
    Cancel: 'task.cancel',
  },
  'virtkeep.agent.v1.NodeService': {
    GetInfo: 'node.read',
    WatchInventory: 'node.read',
    RenewCertificate: 'controller',
    InstallCertificate: 'controller',
    Revoke: 'controller',
    WatchQuestions: 'controller',
    AnswerQuestion: 'controller',
    FindUses: 'controller',
  },
  'virtkeep.agent.v1.DomainService': {
    List: 'domain.read',
    Get: 'domain.read',
    GetXml: 'domain.read',
    SetPower: 'domain.power',
    Remove: 'domain.manage',
    Update: 'domain.manage',
    Rename: 'domain.manage',
  },
  'virtkeep.agent.v1.SnapshotService': {
    List: 'domain.read',
    Create: 'snapshot.manage',
    Remove: 'snapshot.manage',
    Revert: 'snapshot.manage',
  },
  'virtkeep.agent.v1.DiskService': {
    Attach: forAttach,
    Detach: 'vdisk.attach',
    Lend: 'controller',
    Return: 'controller',
  },
  'virtkeep.agent.v1.PoolService': {
    List: 'pool.read',
    Get: 'pool.read',
    Update: 'pool.manage',
    Scan: 'pool.scan',
    StreamFiles: 'library.read',
    ListFiles: 'library.read',
  },
  'virtkeep.agent.v1.BackupService': {
    Start: 'backup.create',
    Show: 'library.read',
    Refresh: 'library.manage',
    Verify: 'library.manage',
    // Which file is protected only the controller knows.
    Delete: 'controller',
    Recompress: 'controller',
    RecompressCopy: 'controller',
    Convert: 'controller',
    Export: 'controller',
    Trim: 'controller',
    Download: 'library.download',
  },
  'virtkeep.agent.v1.ImageService': {
    List: 'library.read',
    Download: 'library.download',
    Upload: 'library.upload',
  },
  'virtkeep.agent.v1.UploadService': {
    Create: 'library.upload',
    Resume: 'library.upload',
    Get: 'library.upload',
    Write: 'library.upload',
    Abort: 'library.upload',
  },
  'virtkeep.agent.v1.RestoreService': {
    Start: forRestore,
    // nobody vouches for what has no signature
    StartConfig: 'backup.restore_foreign',
    StartAppliance: 'backup.restore_foreign',
    ImportDisk: 'backup.restore_foreign',
  },
  'virtkeep.agent.v1.TemplateService': {
    Clone: 'domain.manage',
    Change: 'domain.manage',
  },
  'virtkeep.agent.v1.GuestService': {
    ListCommands: 'guest.read',
    RunCommand: forGuestCommand,
    GetInfo: forGuestInfo,
    SetHostname: 'guest.execute',
    JoinDirectory: 'guest.execute',
    LeaveDirectory: 'guest.execute',
    ListSshKeys: 'guest.execute',
    AddSshKeys: 'guest.execute',
    RemoveSshKeys: 'guest.execute',
    Sysprep: 'guest.execute',
    Prepare: 'guest.execute',
    ListPreparations: 'guest.execute',
    AttachTools: 'guest.execute',
    DetachTools: 'guest.execute',
  },
  'grpc.health.v1.Health': { Check: 'system.read', Watch: 'system.read' },
  'grpc.reflection.v1.ServerReflection': { ServerReflectionInfo: 'system.read' },
  'grpc.reflection.v1alpha.ServerReflection': { ServerReflectionInfo: 'system.read' },
};

/** True when the role may call the method, given as its path (`/package.Service/Method`), with this request. */
export function mayCall(role: Role | undefined, methodPath: string, request: unknown): boolean {
  const [, service = '', method = ''] = methodPath.split('/');
  const methods = Object.hasOwn(NEEDS, service) ? NEEDS[service]! : {};
  const need = Object.hasOwn(methods, method) ? methods[method] : undefined;
  if (role === undefined || need === undefined) return false;
  if (role === 'controller') return true;
  const needed = typeof need === 'function' ? need(request as never) : need;
  return needed !== 'controller' && roleAllows(role, needed);
}
