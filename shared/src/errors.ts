/**
 * The one error table. Every error that reaches a user is one of these keys; docs/errors.md is generated from it.
 *
 * A numeric code's first three digits are the HTTP status. `text` says what was wrong and what to do; `{name}` is
 * replaced from the error's params. `retryable` means: the same request may succeed later without being changed.
 */
export interface ErrorSpec {
  /** Numeric code; the first three digits are the HTTP status. */
  code: string;
  text: string;
  retryable: boolean;
}

const fixed = (code: string, text: string): ErrorSpec => ({ code, text, retryable: false });
const passing = (code: string, text: string): ErrorSpec => ({ code, text, retryable: true });

export const ERRORS = {
  // 400: the request itself is wrong
  bad_request: fixed('40000', 'The request is not valid: {reason}.'),
  broken_json: fixed('40001', 'The body is not valid JSON: {reason}. Send a JSON object.'),
  unknown_field: fixed(
    '40002',
    'Unknown field "{field}". Remove it; the API document lists the fields of this call.',
  ),
  invalid_field: fixed('40003', 'The field "{field}" {reason}.'),
  missing_field: fixed('40004', 'The field "{field}" is required.'),
  invalid_uuid: fixed('40005', '"{value}" is not a UUID: 32 hexadecimal digits, as 8-4-4-4-12.'),
  unknown_ordering: fixed('40006', 'Cannot order by "{value}". Use one of: {allowed}.'),
  invalid_name: fixed('40007', 'The name "{value}" cannot be used: {reason}.'),
  conflicting_fields: fixed(
    '40008',
    'The fields "{first}" and "{second}" exclude each other. Send one of them.',
  ),
  enrolment_token_invalid: fixed(
    '40009',
    'The enrolment token is not valid, was used already, or has expired. Make a new one on the controller.',
  ),

  attached_object_given: fixed(
    '40010',
    'The id {value} is that of the attached object. Pass the id of the original disk, {disk}.',
  ),
  invalid_thin_clone: fixed('40011', 'The domain {id} given as thin_clone {reason}.'),
  guest_argument_invalid: fixed('40012', 'The argument "{field}" of {command} {reason}.'),
  ssh_key_invalid: fixed(
    '40013',
    'This is not an SSH public key: {reason}. Send one line: type, base64 key, comment.',
  ),

  ovf_system_ambiguous: fixed(
    '40014',
    'The OVF descriptor {subject} describes several VMs. Choose one of them: {systems}.',
  ),

  upload_hash: fixed(
    '40030',
    'What was uploaded has the SHA-256 {found}, and {expected} was announced; it was not kept. Upload the file again.',
  ),

  // 401, 403
  login_required: fixed('40100', 'Log in first: send the header "Authorization: jwt <token>".'),
  login_failed: fixed('40101', 'The user name or the password is wrong.'),
  token_expired: fixed('40102', 'Signature has expired.'),
  token_invalid: fixed('40103', 'The token is not valid. Log in again.'),
  token_revoked: fixed('40104', 'The token was revoked. Log in again.'),
  permission_denied: fixed(
    '40300',
    'Your role "{role}" does not allow this. Ask an administrator for the permission "{permission}".',
  ),
  session_required: fixed(
    '40305',
    'An integration token cannot do this. Log in with user name and password, and send the token of that login.',
  ),
  foreign_origin: fixed(
    '40308',
    'Only the pages of this controller log in like this. Programs log in at /auth/ and send the token in a header.',
  ),
  peer_revoked: fixed(
    '40306',
    'The certificate "{subject}" ({serial}) was revoked. Ask an administrator for another one.',
  ),
  peer_ended: fixed(
    '40307',
    'The life of the certificate "{subject}" ({serial}) has ended. Ask an administrator for another one.',
  ),
  peer_not_allowed: fixed('40301', 'The certificate "{subject}" may not call {method}.'),
  archive_foreign: fixed(
    '40303',
    'Nobody vouches for the archive {file}: {reason}. Have an administrator restore it with "allow_foreign", which leaves out what could reach the node.',
  ),

  // 404, 405
  pages_not_built: fixed(
    '40431',
    'The management pages are not part of this installation. Build them with "make web" and start the controller again.',
  ),
  not_found: fixed('40400', 'Nothing is at {path}. The API document lists the paths.'),
  domain_not_found: fixed('40401', 'There is no domain {id} on this node or on any connected node.'),
  schedule_not_found: fixed('40430', 'There is no scheduled task {id}.'),
  pool_not_found: fixed('40402', 'There is no data pool {id}.'),
  file_not_found: fixed(
    '40403',
    'There is no backup file {id}. Scan its data pool if it was copied there by hand.',
  ),
  node_not_found: fixed('40404', 'There is no node {id}.'),
  task_not_found: fixed('40405', 'There is no task {id}.'),
  operation_not_found: fixed('40406', 'There is no operation {id} on this node.'),
  user_not_found: fixed('40407', 'There is no user {id}.'),
  session_not_found: fixed('40424', 'This user has no login {id}. It may have ended by itself.'),
  token_not_found: fixed('40408', 'There is no token {id}.'),
  vdisk_not_found: fixed('40409', 'There is no disk {id}.'),
  state_not_found: fixed('40410', 'The backup {file} has no state {state}.'),
  member_not_found: fixed('40411', 'The archive {path} has no member {member}.'),
  ovf_system_unknown: fixed('40420', 'The OVF descriptor {subject} has no VM {system}. It has: {systems}.'),
  ovf_configuration_unknown: fixed(
    '40421',
    'The OVF descriptor {subject} has no configuration {configuration}. It has: {configurations}.',
  ),
  network_not_found: fixed('40422', 'The node {node} has no network or bridge {name}. It has: {names}.'),
  network_not_in_file: fixed(
    '40423',
    'No network adapter of the VM in {file} is connected to {name}. Networks of its adapters: {names}.',
  ),
  snapshot_not_found: fixed('40412', 'The domain {domain} has no saved state {id}.'),
  guest_command_unknown: fixed(
    '40413',
    'The guest agent of {domain} does not know {command}. What it offers is listed at available-guest-cmds.',
  ),
  guest_process_unknown: fixed(
    '40414',
    'The guest of {domain} does not know the process {pid}. Results are kept for ten minutes after its end.',
  ),
  certificate_not_found: fixed(
    '40415',
    'No certificate with the serial {id} was issued here. If an earlier version issued it, or it was issued since the database was put back, say so with "unknown" (--unknown).',
  ),
  event_not_found: fixed('40416', 'There is no event {id}. Old ones are forgotten.'),
  tag_not_found: fixed('40417', 'There is no tag {id}.'),
  entity_not_found: fixed(
    '40418',
    'There is no domain, node, data pool, disk or backup file {id}. Only these can be tagged.',
  ),
  iso_not_found: fixed(
    '40419',
    'There is no ISO image {id} in a data pool that can be reached. It ends with .iso and lies in the pool itself.',
  ),
  notification_target_not_found: fixed('40440', 'There is no notification target {id}.'),
  upload_not_found: fixed(
    '40443',
    'There is no upload {id}. It was cancelled, or had no byte for too long; begin again.',
  ),
  notification_not_found: fixed('40441', 'There is no notification {id}. Old ones are forgotten.'),
  method_not_allowed: fixed('40500', '{method} is not allowed at {path}. Allowed: {allowed}.'),

  // 409: the state of the thing refuses it
  rename_with_states: fixed(
    '40995',
    'The domain {domain} has saved states, which bear its name and could not be gone back to under another. Delete them first.',
  ),
  schedule_changed: fixed(
    '40974',
    'The scheduled task "{name}" was changed by somebody else meanwhile, at {modified}. Look at it as it is now, and change that.',
  ),
  schedule_running: fixed(
    '40996',
    'The scheduled task "{name}" runs just now. Wait for the end of its run, or cancel it.',
  ),
  window_ended: fixed('40998', 'It had not begun when the window of the run ended, at {end}.'),
  nothing_selected: fixed(
    '40999',
    'The scheduled task "{name}" selects no VM that is there, so nothing was backed up. Change what it selects, or disable it.',
  ),
  parts_failed: fixed('40994', 'None of the {count} parts succeeded. {reason}'),
  too_many_tags: fixed('40993', 'There are {limit} already, which is the most. Remove some first.'),
  notification_sent: fixed(
    '40978',
    'The notification {id} was delivered at {time}; there is nothing to try again.',
  ),
  too_many_notification_targets: fixed(
    '40979',
    'There are {limit} notification targets already, which is the most. Remove one first, or give one of them several recipients.',
  ),
  domain_busy: passing(
    '40900',
    'The domain {domain} is used by operation {operation} ({kind}). Wait for its end or cancel it.',
  ),
  vdisk_attached_elsewhere: fixed(
    '40901',
    'Disks of {domain} are attached to other domains: {attachments}. Detach them first; until then it cannot be {action}.',
  ),
  file_busy: passing(
    '40938',
    'The backup file {file} is used by operation {operation} ({kind}). Wait for its end or cancel it.',
  ),
  idempotency_answer_gone: fixed(
    '40959',
    'This request was carried out before under this idempotency key, or may have been; its answer is not at hand. Look at what there is now, and use a new key to carry it out again.',
  ),
  idempotency_conflict: fixed('40902', 'This idempotency key was used with another request. Use a new key.'),
  pool_kind_unsupported: fixed(
    '40903',
    'Backups are not supported on {kind} pools ({pool}), neither as source nor as target. Move the disk or choose a dir, nfs or zfs-dataset pool.',
  ),
  pool_read_only: fixed('40904', 'The data pool {pool} is read-only. Choose a pool that can be written.'),
  pool_outside: fixed(
    '40905',
    'The data pool {pool} is an outside pool and is not written to. Choose another pool.',
  ),
  pool_not_active: passing(
    '40906',
    'The data pool {pool} is not active on the node {node}. Start it or choose another pool.',
  ),
  pool_not_mounted: passing(
    '40907',
    'The data pool {pool} is not mounted at {path}: its marker file is absent. Mount it first.',
  ),
  clean_up_waits: passing(
    '40960',
    'What is left to do lies in {path} (data pool {pool}), which is not there: {reason}. It is done as soon as it is back.',
  ),
  pool_no_space: passing(
    '40908',
    'The data pool {pool} has {free_bytes} bytes free, {needed_bytes} are needed. Free space or choose another pool.',
  ),
  zfs_with_states: fixed(
    '40909',
    'The domain {domain} has saved states and disks on a zfs pool ({pool}); such a backup is not supported. Delete the saved states first.',
  ),
  zfs_incremental: fixed(
    '40958',
    'Incremental backup of {domain} is not supported: it has disks on a zfs pool ({pool}). Make a backup without increments.',
  ),
  mdev_running: fixed(
    '40910',
    'The domain {domain} has mediated devices and can be backed up only while it is off. Shut it down first.',
  ),
  consistency_unavailable: passing(
    '40911',
    'A consistent saved state was required, but the guest agent of {domain} does not answer: {reason}. Start the agent or drop require_consistency.',
  ),
  identity_in_use: fixed(
    '40912',
    'The original domain {domain} still exists on {node}. Restore it as a new domain, or remove the original first.',
  ),
  name_in_use: fixed('40913', 'A domain named "{name}" exists already. Choose another name.'),
  template_not_startable: fixed(
    '40914',
    'The domain {domain} is a template and cannot be started. Clone it, or unmark it first.',
  ),
  power_state_conflict: fixed('40915', 'The domain {domain} is {state}; it cannot be {action}.'),
  file_protected: fixed('40916', 'The backup file {file} is protected. Remove the protection first.'),
  file_exists: fixed('40917', 'The file {path} exists already and is not overwritten. Choose another name.'),
  not_cancellable: fixed('40918', 'The task {id} cannot be cancelled: it is {status}.'),
  name_taken: fixed('40919', 'The name "{name}" is taken.'),
  snapshot_chain_unsupported: fixed(
    '40920',
    'The saved states of {domain} cannot go into a backup: {reason}.',
  ),
  domain_in_service: fixed(
    '40921',
    'The domain {domain} is in another storage operation ({job}). Try again when it has ended.',
  ),
  domain_has_states: fixed('40922', 'The domain {domain} has saved states. Delete them first or pass full.'),
  domain_running: fixed('40923', 'The domain {domain} is running. Shut it down first, or pass force.'),
  node_in_service: fixed('40924', 'The node {node} is in service mode and takes no new operations.'),
  node_outdated: fixed(
    '40964',
    'The agent of the node {node} is of an earlier version and does not know {method}. Upgrade it, then send the request again.',
  ),
  node_known: fixed(
    '40963',
    'The node {id} is enrolled already, and this token is for a new one. To let this machine take its place make a token for it: "virtkeep-controller node token --replace {id}".',
  ),
  enrolment_for_other_node: fixed('40961', 'This enrolment token is for the node {id} and no other.'),
  certificate_in_use: fixed(
    '40962',
    'The certificate {id} is the one by which this controller commands its nodes. To replace it stop the controller, move pki/controller.pem out of its state directory, start it, and revoke this one then.',
  ),
  node_has_tasks: fixed('40925', 'The node {node} has running tasks. Cancel them or wait for their end.'),
  file_not_backup: fixed(
    '40926',
    'The file {file} is of type {type}; {action} works on backups made by this service only.',
  ),
  file_not_convertible: fixed(
    '40966',
    'The file {file} is of type {type}; only an OVA, an OVF descriptor with its disks, an archive of Proxmox VE and a directory of virtnbdbackup become backups.',
  ),
  file_not_removable: fixed(
    '40967',
    'The backup {file} is a directory that {program} has written and may go on writing to. Remove the directory by hand, then scan its data pool.',
  ),
  file_not_disk_image: fixed(
    '40976',
    'The file {file} is of type {type}; only a disk image that stands alone is imported as a disk.',
  ),
  disk_format_contradicted: fixed(
    '40977',
    'The disk image {file} is taken for {expected} and looks like {found}. Nothing was read of it; say with "format" which of both it is.',
  ),
  file_not_definition: fixed(
    '40965',
    'The file {file} is of type {type}; a VM without disks is restored from a domain XML, an OVF descriptor, an archive of Proxmox VE or a directory of virtnbdbackup only.',
  ),
  template_missing: fixed(
    '40927',
    'The backup {file} is of a thin clone and its template {template} is not on the node. Restore the template first.',
  ),
  operation_conflict: fixed('40928', 'The operation id {id} was used for another request. Choose a new id.'),
  last_administrator: fixed(
    '40929',
    'The last enabled administrator cannot be disabled or removed, or lose the role. Make another administrator first.',
  ),
  own_user: fixed(
    '40973',
    'Nobody removes the user as whom they are logged in. Let another administrator do it.',
  ),
  disk_path_in_use: fixed(
    '40930',
    'The path {path} is taken by a file that is not part of this backup. Give a data pool to restore to.',
  ),
  path_outside_pool: fixed('40931', 'The path {path} leaves its data pool {pool}.'),
  pool_ownership: fixed(
    '40992',
    "The data pool {pool} is not used: {reason}, so others than root could exchange its files. Let its directories belong to root, or set pools.ownership to warn in the agent's settings.",
  ),
  not_a_file: fixed(
    '40990',
    '{path} is {what}. Only regular files are read in a data pool; put the file itself there, or remove it.',
  ),
  file_too_large: fixed('40991', '{path} has {bytes} bytes; at most {limit} are read of such a file.'),
  pool_busy: passing(
    '40932',
    'The data pool {pool} is used by operation {operation} ({kind}). Wait for its end or cancel it.',
  ),

  not_extendable: fixed(
    '40933',
    'The backup {file} cannot be extended: {reason}. Start a backup with increment capability instead.',
  ),
  snapshot_name_taken: fixed('40934', 'The domain {domain} has a saved state named "{name}" already.'),
  snapshot_in_use: fixed('40935', 'The saved states of {domain} cannot be changed now: {reason}.'),
  compression_same: fixed('40936', 'The backup {file} is {format} already; there is nothing to convert.'),
  nothing_to_trim: fixed(
    '40997',
    'The backup {file} has restore points: {states}. None is to go when {keep_states} are to stay.',
  ),
  instant_restore_unsupported: fixed(
    '40937',
    'An instant restore of {file} is not possible: {reason}. Restore it in the ordinary way.',
  ),
  vdisk_attached_already: fixed('40939', 'The disk {disk} is attached to {domain} already, as {target}.'),
  vdisk_not_attached: fixed('40940', 'The disk {disk} of another domain is not attached to {domain}.'),
  vdisk_unreachable: fixed(
    '40941',
    'The disk {disk} cannot be attached on the node {node}: {reason}. It needs a data pool that both nodes have.',
  ),
  loan_renewed: passing(
    '40968',
    'The disk {disk} was lent to the domain {borrower} again meanwhile; that loan is not ended.',
  ),
  loan_in_use: passing('40969', 'The disk {disk} is not taken back: {user} has it. Detach it there first.'),
  template_has_clones: fixed(
    '40942',
    'The template {domain} has thin clones ({clones}) and cannot be {action}: it would break them.',
  ),
  not_template: fixed('40943', 'The domain {domain} is not a template. Mark it as one first.'),
  not_thin_clone: fixed('40944', 'The domain {domain} is not a thin clone of a template.'),
  template_change_refused: fixed(
    '40945',
    'The template {domain} cannot be changed now: {reasons}. Nothing was touched.',
  ),
  template_mismatch: fixed(
    '40946',
    'The template {template} is not the one that the thin clone in {file} stands on: {reason}. Remove the changed template with its disks, restore it from its own backup, then restore the thin clone.',
  ),
  zfs_clone_exists: fixed(
    '40947',
    'The saved state of {domain} cannot be deleted while its zfs clone {clone} exists. Destroy the clone first.',
  ),
  guest_off: fixed(
    '40948',
    'The domain {domain} is {state}; its guest agent can be asked only while it runs. Start or resume it.',
  ),
  guest_no_channel: fixed(
    '40949',
    'The domain {domain} has no channel for a guest agent. Add the channel org.qemu.guest_agent.0 to it.',
  ),
  guest_agent_busy: passing(
    '40950',
    'The guest agent of {domain} is busy with {command}. Try again when it has ended.',
  ),
  guest_frozen: passing(
    '40951',
    'The file systems of {domain} are frozen, its agent refuses {command}. Thaw them first: guest-fsfreeze-thaw.',
  ),
  guest_command_disabled: fixed(
    '40952',
    'The guest agent of {domain} has {command} disabled. Allow it in the configuration of the agent in the guest.',
  ),
  guest_os_unsupported: fixed('40953', 'The guest of {domain} is {os}; {operation} does not work there.'),
  guest_packages_missing: fixed(
    '40954',
    'The guest of {domain} lacks what {operation} needs: {missing}. Install it in the guest.',
  ),
  guest_tools_unavailable: fixed('40955', 'The guest tools image cannot be mounted or unmounted: {reason}.'),
  no_free_slot: fixed(
    '40956',
    'The running domain {domain} has no free slot for another disk. Attach it while the domain is off, or add pcie-root-port controllers.',
  ),
  domain_on_several_nodes: fixed(
    '40980',
    'The domain {domain} is defined on several nodes ({nodes}), runs on none of them, and was not seen to run on one of them last. Undefine the stale copies with virsh on their nodes, keeping the disks, or start the right one there.',
  ),
  domain_runs_twice: fixed(
    '40981',
    'The domain {domain} runs on several nodes at once ({nodes}): they may destroy its disks. Stop it everywhere but on one of them at once, with virsh on the node; until then it can only be shut down.',
  ),
  domain_elsewhere: fixed(
    '40982',
    'The domain {domain} on {node} is a stale copy: the VM is on {other}. Work with the VM there, and undefine the copy with virsh, keeping the disks.',
  ),
  lun_unavailable: fixed(
    '40983',
    'The storage {source} cannot be attached to the restored domain as {target}: {reason}. Leave it out of "luns", or free it first.',
  ),
  clone_refused: fixed('40957', 'The domain {domain} cannot be cloned: {reason}.'),
  domain_transient: fixed(
    '40970',
    'The domain {domain} is transient: libvirt forgets it when it stops, and whoever starts it again knows nothing of what was done to its disks. It cannot be {action}. Define it first ("virsh define"); full backups without saved states work.',
  ),
  vdisk_encrypted: fixed(
    '40972',
    'The disk {disk} of {domain} is encrypted; it cannot be {action}. A full backup of it works while the VM is off, when it is one file; other disks of the VM can be backed up with it excluded.',
  ),
  layers_on_network: fixed(
    '40984',
    'All disks of {domain} are devices, so what it writes would lie in {directory}, on a network file system ({network}), and the VM would depend on that. Choose a local data pool for the backup, or a local base data pool for the node; or allow it with allow_network_layers.',
  ),
  archive_too_large: fixed(
    '40985',
    'The compressed archive {path} would hold {bytes} bytes, and {limit_bytes} are the most that can be read back. Leave it uncompressed, begin a new one, or leave disks out.',
  ),
  domain_memory_saved: fixed(
    '40971',
    'The memory of the domain {domain} is saved (managed save) and goes on only with its disks as they are; it cannot be {action}. Start it first, or discard the memory with "virsh managedsave-remove".',
  ),
  upload_under_way: passing(
    '40986',
    'The file {path} is being uploaded already; what has come is in {partial}. Wait for that upload, or cancel it; should its node be gone for good, remove that file.',
  ),
  upload_busy: passing(
    '40987',
    'Somebody sends bytes of the upload {id} at the moment, or it is being checked. Ask for its offset, then go on.',
  ),
  upload_offset: fixed('40988', 'The upload {id} has {offset} bytes; what was sent begins at {given}.'),
  database_in_use: passing(
    '50321',
    'The database is in use: a controller serves it, or another command works on it. Stop the controller first.',
  ),
  database_not_empty: fixed(
    '41205',
    'The database that is to be filled has something already, in its table {table}. Give an empty one.',
  ),
  database_copy_differs: fixed(
    '40989',
    'The copy of the database is not the same in the table {table} ({columns}); it was taken back. Nothing has changed.',
  ),
  image_in_use: passing('40975', 'The image {path} stays as it is: it is used by {user}.'),

  upload_checksum: passing(
    '46000',
    'The bytes have another checksum ({algorithm}) than was announced; they were not kept. Send them again.',
  ),

  tus_version: fixed('41200', 'Only version 1.0.0 of the tus protocol is spoken; "{value}" was asked for.'),

  // 413, 415, 416, 422-like are 400; 429
  body_too_large: fixed('41300', 'The body is larger than {limit_bytes} bytes.'),
  unsupported_media_type: fixed(
    '41500',
    'The content type "{value}" is not supported. Send application/json.',
  ),
  range_not_satisfiable: fixed('41600', 'There are only {size} bytes; the range "{range}" lies outside.'),
  too_many_requests: passing('42900', 'Too many requests. Try again in {seconds} s.'),
  too_many_logins: passing('42901', 'Too many failed logins. Try again in {seconds} s.'),

  // 500: our fault
  internal: fixed(
    '50000',
    'Something went wrong inside the service. The log has the details under the request id {request_id}.',
  ),
  journal_failed: fixed('50001', 'The journal at {path} cannot be written: {reason}. Nothing was changed.'),
  interrupted: passing(
    '50002',
    'The agent was stopped in the middle of the operation; what it had begun was undone.',
  ),

  // 502: the hypervisor, the guest or the storage refused
  libvirt_failed: fixed('50200', 'libvirt refused {call}: {reason}.'),
  qemu_img_failed: fixed('50201', 'qemu-img {command} failed: {reason}.'),
  snapshot_failed: passing(
    '50202',
    'The saved state of {domain} could not be made: {reason}. Nothing was left on it.',
  ),
  merge_failed: passing(
    '50203',
    'The automatic saved state {state} of {domain} could not be removed: {reason}. It will be tried again.',
  ),
  io_failed: fixed('50204', '{operation} {path} failed: {reason}.'),
  disk_full: passing(
    '50205',
    'No space left on the device while writing {path}. What was written has been removed.',
  ),
  archive_damaged: fixed('50206', 'The archive {path} is damaged: {reason}.'),
  archive_unsupported: fixed('50207', 'The archive {path} cannot be read: {reason}.'),
  hash_mismatch: fixed(
    '50208',
    'The member {member} of {path} does not have its recorded hash. The archive is damaged.',
  ),
  domain_stopped: passing('50209', 'The domain {domain} stopped in the middle of the operation.'),
  xml_invalid: fixed('50210', 'The domain XML of {subject} cannot be used: {reason}.'),
  ovf_invalid: fixed('50224', 'The OVF descriptor {subject} cannot be read: {reason}.'),
  ovf_version_unsupported: fixed(
    '50225',
    'The OVF descriptor {subject} is of another version: its namespace is {namespace}. Only OVF 1.0 and 1.1 are read; export the VM in one of them.',
  ),
  ovf_disk_unusable: fixed(
    '50226',
    'The disk {disk} of the VM {name} cannot be brought along: {reason}. Export the VM anew, or restore it without disks.',
  ),
  guest_agent_failed: fixed('50211', 'The guest agent of {domain} refused {command}: {reason}.'),
  guest_thaw_failed: passing(
    '50212',
    'The file systems of {domain} could not be thawed: {reason}. It is tried again until it works.',
  ),

  revert_failed: passing('50213', 'The domain {domain} could not be reverted to "{state}": {reason}.'),
  snapshot_remove_failed: passing(
    '50214',
    'The saved state {state} of {domain} could not be deleted: {reason}. What is merged already stays merged.',
  ),

  // the text is the specification's
  device_did_not_detach: passing(
    '50215',
    'Domain {id} device did not detach. Nothing is lost: it goes as soon as the guest lets go, resets or stops, or on another request.',
  ),
  hook_failed: passing(
    '50223',
    "The program that the node runs before a backup refused it ({phase}): {reason}. It is set in hooks.backup of the agent's settings; its output is in the agent's log.",
  ),
  zfs_failed: fixed('50216', 'zfs {command} failed: {reason}.'),
  guest_operation_failed: fixed('50217', '{operation} failed in the guest of {domain}: {reason}.'),
  directory_login_failed: fixed(
    '50218',
    'The directory {directory} refused the login or the password of {login}.',
  ),
  directory_not_found: fixed(
    '50219',
    'The guest of {domain} does not find the directory {directory}: {reason}. Its name must resolve in the guest.',
  ),
  guestfs_failed: fixed('50220', '{program} failed on the disk of {domain}: {reason}.'),
  guest_install_failed: passing(
    '50221',
    'The package manager in the guest of {domain} did not install {missing}: {reason}. Install it in the guest, or try again.',
  ),
  appliance_invalid: fixed(
    '50230',
    'The appliance {path} cannot be used: {reason}. Export or pack it anew where it comes from.',
  ),
  export_unsupported: fixed(
    '50240',
    'The backup {file} cannot be exported: {reason}. Restore it here, and export it by the means of the guest.',
  ),
  foreign_disk_invalid: fixed(
    '50231',
    'The disk image {path} cannot be taken: {reason}. Convert it with its own tools into an image that stands alone.',
  ),

  tool_missing: fixed(
    '50232',
    'The program {program} is not installed on the node. Install the package {package} there, then send the request again.',
  ),
  driver_injection_failed: fixed(
    '50233',
    'virt-v2v did not put the drivers of virtio into the guest of {vm}: {reason}. Install them before the VM is exported, or send the request without inject_drivers.',
  ),

  // 503, 504
  node_unreachable: passing(
    '50300',
    'The node {node} is not reachable: {reason}. Try again when it is back.',
  ),
  draining: passing('50301', 'The service is shutting down and takes no new work.'),
  libvirt_unreachable: passing('50302', 'libvirt at {uri} is not reachable: {reason}.'),
  overloaded: passing('50303', 'The service is overloaded. Try again shortly.'),
  outcome_unknown: passing('50304', 'The node {node} is gone; the outcome is not known until it returns.'),
  operation_unknown: passing(
    '50305',
    'The node {node} does not know the operation: the request never reached it, or its journal was lost. Look at the result, then send the request again.',
  ),
  image_use_unknown: passing(
    '50315',
    'The image {path} stays as it is: whether another node uses it is not known ({reason}).',
  ),
  controller_superseded: passing(
    '50316',
    'Another controller (epoch {highest}) has taken over from this one (epoch {epoch}). Send the request again.',
  ),
  no_controller: passing(
    '50317',
    'No controller acts at the moment: {reason}. Send the request again shortly.',
  ),
  controller_changed: passing(
    '50318',
    'The controller that acted was lost while it had the request, which may have been done or not. Send it again with the same idempotency key, or look first.',
  ),
  database_unavailable: passing(
    '50320',
    'The database of the controller cannot be reached: {reason}. Whether what was asked for is done is seen when it is back.',
  ),
  timed_out: passing('50400', '{operation} did not end within {seconds} s.'),
  guest_command_timed_out: passing(
    '50402',
    'The guest agent of {domain} did not end {command} within {seconds} s; it may still be at it. Look at the guest, or give it a longer timeout.',
  ),
  guest_agent_disconnected: passing(
    '50403',
    'The guest agent of {domain} is not connected. Install or start qemu-guest-agent in the guest.',
  ),
  guest_agent_silent: passing(
    '50401',
    'The guest agent of {domain} did not answer {command} in time. Try again; if it stays silent, restart the agent in the guest.',
  ),

  // 499: ended by the user (never an HTTP status of an answer by itself)
  canceled: fixed('49900', 'The operation was cancelled.'),
} as const satisfies Record<string, ErrorSpec>;

export type ErrorKey = keyof typeof ERRORS;
export type ErrorParams = Record<string, string | number | bigint>;

/** The only error type that crosses a module boundary of the product. */
export class VirtkeepError extends Error {
  override readonly name = 'VirtkeepError';
  readonly msgKey: ErrorKey;
  readonly params: Record<string, string>;

  constructor(msgKey: ErrorKey, params: ErrorParams = {}, options: { cause?: unknown } = {}) {
    const texts = Object.fromEntries(Object.entries(params).map(([name, value]) => [name, String(value)]));
    super(fillText(ERRORS[msgKey].text, texts), options);
    this.msgKey = msgKey;
    this.params = texts;
  }

  get code(): string {
    return ERRORS[this.msgKey].code;
  }

  /** The HTTP status of this error. */
  get status(): number {
    return httpStatusOf(this.msgKey);
  }

  /** The request field the error is about, when there is one. */
  get field(): string | undefined {
    return this.params.field;
  }
}

/** HTTP status of an error key: the first three digits of its code; a cancelled operation answers 409. */
export function httpStatusOf(key: ErrorKey): number {
  const status = Number(ERRORS[key].code.slice(0, 3));
  return status === 499 ? 409 : status;
}

/** Whether a text is a key of the table. */
export function isErrorKey(value: string): value is ErrorKey {
  return Object.hasOwn(ERRORS, value);
}

/** True for a VirtkeepError of any of these keys (by name, since error classes differ between realms). */
export function hasKey(error: unknown, ...keys: ErrorKey[]): error is VirtkeepError {
  return isVirtkeepError(error) && (keys.length === 0 || keys.includes(error.msgKey));
}

/** Whether an error is one of the table. */
export function isVirtkeepError(error: unknown): error is VirtkeepError {
  return error instanceof VirtkeepError;
}

/** The text of anything thrown, for people; never a stack. */
export function reasonOf(error: unknown): string {
  if (typeof error === 'object' && error !== null && 'message' in error) return String(error.message);
  return String(error);
}

/** The `code` of a Node or native error ('ENOSPC', …), or undefined. */
export function errnoOf(error: unknown): string | undefined {
  if (typeof error === 'object' && error !== null && 'code' in error && typeof error.code === 'string')
    return error.code;
  return undefined;
}

/**
 * Turns a file-system error into the table's: ENOSPC and EDQUOT are `disk_full` (permanent, not retried),
 * EROFS is `pool_read_only`, the rest `io_failed`.
 */
export function fromIoError(error: unknown, operation: string, path: string): VirtkeepError {
  if (isVirtkeepError(error)) return error;
  const code = errnoOf(error);
  if (code === 'ENOSPC' || code === 'EDQUOT')
    return new VirtkeepError('disk_full', { path }, { cause: error });
  if (code === 'EROFS') return new VirtkeepError('pool_read_only', { pool: path }, { cause: error });
  return new VirtkeepError('io_failed', { operation, path, reason: reasonOf(error) }, { cause: error });
}

function fillText(text: string, params: Record<string, string>): string {
  return text.replace(/\{(\w+)\}/g, (whole, name: string) => params[name] ?? whole);
}
