export type { CertificateAuthority, IssuedCertificate } from './authority.ts';
export { ensureCa, issueCertificate, issueServerCertificate } from './authority.ts';
export { type NodeIdentity, signNodeRequest } from './csr.ts';
export { issueServiceCertificate } from './issue-service.ts';
export { CONTROLLER_URN, isHost, nodeUrn, roleUrn, SERVICE_ROLES, type ServiceRole } from './names.ts';
export { ensureControllerCertificate, ensureServerCertificate } from './stored.ts';
export { needsRenewal } from './x509.ts';
