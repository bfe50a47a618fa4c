import { isIP } from 'node:net';
import type { ServiceRole } from '@virtkeep/shared/permissions';

/** The names a certificate proves, all of them SAN entries: URNs for who it is, DNS names and addresses for where. */
export interface CertificateNames {
  urns: string[];
  hosts: string[];
}

export const CONTROLLER_URN = 'urn:virtkeep:role:controller';
export const roleUrn = (role: ServiceRole): string => `urn:virtkeep:role:${role}`;
export const nodeUrn = (nodeId: string): string => `urn:virtkeep:node:${nodeId}`;
/**
 * The same as a name for TLS clients that can compare nothing but host names (grpcurl's `-authority`). No host is called
 * so, since the domain `internal` is delegated to nobody.
 */
export const nodeHost = (nodeId: string): string => `${nodeId}.node.virtkeep.internal`;

const HOST_LABELS =
  /^(?=.{1,253}$)[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*$/i;

/** True for an IP address or a DNS name (RFC 1123, underscores tolerated since hosts bear them). */
export function isHost(value: string): boolean {
  return isIP(value) !== 0 || HOST_LABELS.test(value);
}
