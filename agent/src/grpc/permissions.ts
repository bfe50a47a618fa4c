/**
 * Who may call what: the one table. A peer is what its client certificate says it is; `docs/grpc.md` explains how the
 * certificates are issued. A method that is not here may be called by nobody.
 */

/** Each role includes those before it. */
export const ROLES = ['reader', 'operator', 'controller'] as const;
export type Role = (typeof ROLES)[number];

/** The least role of each method, by the service's full name and the method's name in the proto. */
export const PERMISSIONS: Record<string, Record<string, Role>> = {
  'virtkeep.agent.v1.OperationService': {
    Get: 'reader',
    List: 'reader',
    Watch: 'reader',
    Cancel: 'operator',
  },
  'virtkeep.agent.v1.NodeService': {
    GetInfo: 'reader',
    WatchInventory: 'reader',
    RenewCertificate: 'controller',
    InstallCertificate: 'controller',
    WatchQuestions: 'controller',
    AnswerQuestion: 'controller',
    FindUses: 'controller',
  },
  'virtkeep.agent.v1.DomainService': {
    List: 'reader',
    Get: 'reader',
    GetXml: 'reader',
    SetPower: 'operator',
    Remove: 'controller',
    Update: 'controller',
  },
  'virtkeep.agent.v1.SnapshotService': {
    List: 'reader',
    Create: 'operator',
    Remove: 'controller',
    Revert: 'controller',
  },
  'virtkeep.agent.v1.DiskService': {
    Attach: 'operator',
    Detach: 'operator',
    Lend: 'controller',
    Return: 'controller',
  },
  'virtkeep.agent.v1.PoolService': {
    List: 'reader',
    Get: 'reader',
    Update: 'controller',
    Scan: 'operator',
    ListFiles: 'reader',
  },
  'virtkeep.agent.v1.BackupService': {
    Start: 'operator',
    Show: 'reader',
    Verify: 'operator',
    Delete: 'controller',
    Recompress: 'controller',
    Download: 'operator',
  },
  'virtkeep.agent.v1.RestoreService': {
    Start: 'operator',
  },
  'virtkeep.agent.v1.TemplateService': {
    Clone: 'controller',
    Change: 'controller',
  },
  'virtkeep.agent.v1.GuestService': {
    ListCommands: 'reader',
    RunCommand: 'operator',
    GetInfo: 'reader',
    SetHostname: 'operator',
    JoinDirectory: 'operator',
    LeaveDirectory: 'operator',
    ListSshKeys: 'reader',
    AddSshKeys: 'operator',
    RemoveSshKeys: 'operator',
    Sysprep: 'controller',
    Prepare: 'controller',
    AttachTools: 'operator',
    DetachTools: 'operator',
  },
  'grpc.health.v1.Health': { Check: 'reader', Watch: 'reader' },
  'grpc.reflection.v1.ServerReflection': { ServerReflectionInfo: 'reader' },
  'grpc.reflection.v1alpha.ServerReflection': { ServerReflectionInfo: 'reader' },
};

/** True when the role may call the method, given as its path: `/package.Service/Method`. */
export function mayCall(role: Role | undefined, methodPath: string): boolean {
  const [, service = '', method = ''] = methodPath.split('/');
  const methods = Object.hasOwn(PERMISSIONS, service) ? PERMISSIONS[service]! : {};
  const least = Object.hasOwn(methods, method) ? methods[method] : undefined;
  return role !== undefined && least !== undefined && ROLES.indexOf(role) >= ROLES.indexOf(least);
}
