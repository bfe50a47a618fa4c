/**
 * Scripts for Windows guests. A script is the same for everybody: it reads what it needs, secrets included, as JSON from its
 * standard input and answers with one line of JSON. Texts of Windows are in its own language, so failures are told apart by
 * the types of its exceptions.
 */
import type { VirtkeepError } from '@virtkeep/shared/errors';
import { type Guest, operationFailed, type Program, withoutSecret } from './guest.ts';

/** Adds input, output and failure to what a script does. */
const PROLOGUE = `$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'
$given = [Console]::In.ReadToEnd() | ConvertFrom-Json
function Answer($value) { [Console]::Out.WriteLine(($value | ConvertTo-Json -Compress)) }
function Fail($kind, $record) { Answer @{ failed = $kind; reason = [string]$record.Exception.Message }; exit 1 }
trap { Fail 'other' $_ }
`;

/** What a script needs, and the login when it has one: its password is kept out of error texts. */
export interface Given {
  [name: string]: string | boolean;
}

/** How powershell is run with a script: the encoded form needs no quoting, and policies for files do not apply. */
export function powershell(script: string, given: Given, timeoutMs: number): Program {
  const encoded = Buffer.from(PROLOGUE + script, 'utf16le').toString('base64');
  return {
    path: 'powershell.exe',
    args: ['-NoProfile', '-NonInteractive', '-ExecutionPolicy', 'Bypass', '-EncodedCommand', encoded],
    input: asciiJson(given),
    timeoutMs,
  };
}

/** The console's code page is unknown: everything beyond ASCII is escaped. */
export function asciiJson(value: unknown): string {
  const escaped = (text: string) => `\\u${text.charCodeAt(0).toString(16).padStart(4, '0')}`;
  return JSON.stringify(value).replaceAll(/[\u0080-\uffff]/g, escaped);
}

/** What a failure of a script means beyond guest_operation_failed, by its kind. */
export type Failures = Record<string, (reason: string) => VirtkeepError>;

/**
 * Runs a script and returns its answer.
 * @throws VirtkeepError what `failures` makes of a failure it knows; guest_operation_failed; those of the agent
 */
export async function runScript(
  guest: Guest,
  operation: string,
  program: Program,
  failures: Failures = {},
): Promise<Record<string, unknown>> {
  const result = await guest.run(program);
  const answer = answerIn(result.out);
  if (result.exitCode === 0 && answer && answer.failed === undefined) return answer;
  const said = String(answer?.reason ?? (result.err.trim() || `exit code ${result.exitCode}`));
  const reason = secretsOf(program).reduce(withoutSecret, said).slice(0, 500);
  const failureOf = failures[String(answer?.failed)];
  throw failureOf ? failureOf(reason) : operationFailed(guest, operation, reason);
}

function secretsOf({ input }: Program): string[] {
  const { password } = JSON.parse(input ?? '{}') as { password?: string };
  return password ? [password] : [];
}

/** The last line that is JSON: profiles and modules may have said something before. */
function answerIn(out: string): Record<string, unknown> | undefined {
  for (const line of out.trim().split('\n').reverse()) {
    try {
      const value: unknown = JSON.parse(line);
      if (typeof value === 'object' && value !== null) return value as Record<string, unknown>;
    } catch {
      // some other output
    }
  }
  return undefined;
}

/** The name that Windows has, and the one that it takes at its next start. */
export const READ_NAME = `
$control = 'HKLM:\\SYSTEM\\CurrentControlSet\\Control\\ComputerName'
Answer @{
  active = (Get-ItemProperty "$control\\ActiveComputerName").ComputerName
  next = (Get-ItemProperty "$control\\ComputerName").ComputerName
}
`;

/** Takes `name`. */
export const RENAME = `
$control = 'HKLM:\\SYSTEM\\CurrentControlSet\\Control\\ComputerName'
$next = (Get-ItemProperty "$control\\ComputerName").ComputerName
if ($next -ne $given.name) { Rename-Computer -NewName $given.name -Force -WarningAction SilentlyContinue }
${READ_NAME}`;

/** A moment that is another after each start. */
export const READ_BOOT =
  'Answer @{ boot = [string](Get-CimInstance Win32_OperatingSystem).LastBootUpTime.ToFileTimeUtc() }\n';

/** What the computer belongs to. */
export const READ_DOMAIN = `
$system = Get-CimInstance Win32_ComputerSystem
Answer @{ joined = [bool]$system.PartOfDomain; domain = [string]$system.Domain; name = [string]$system.Name }
`;

/** `login` as a credential of `directory`; a plain name is one of the directory. */
const CREDENTIAL = `
$login = if ($given.login -match '[@\\\\]') { $given.login } else { "$($given.login)@$($given.directory)" }
$secret = ConvertTo-SecureString $given.password -AsPlainText -Force
$credential = New-Object System.Management.Automation.PSCredential($login, $secret)
`;

/** Asks the directory, as `login`, what it is: tells a wrong name from a wrong password. -2147023570 is ERROR_LOGON_FAILURE. */
const CHECK_LOGIN = `
Add-Type -AssemblyName System.DirectoryServices
$context = New-Object System.DirectoryServices.ActiveDirectory.DirectoryContext('Domain', $given.directory, $login, $given.password)
try { [void][System.DirectoryServices.ActiveDirectory.Domain]::GetDomain($context) }
catch {
  $cause = $_.Exception.GetBaseException()
  if ($cause -is [System.Security.Authentication.AuthenticationException]) { Fail 'login' $_ }
  if ($cause -is [System.DirectoryServices.DirectoryServicesCOMException] -and $cause.ErrorCode -eq -2147023570) { Fail 'login' $_ }
  if ($_.Exception.InnerException -is [System.DirectoryServices.ActiveDirectory.ActiveDirectoryObjectNotFoundException]) { Fail 'directory' $_ }
  throw
}
`;

/** Joins `directory` as `login`, optionally under `unit` and with the new `name`. */
export const JOIN = `${CREDENTIAL}
${CHECK_LOGIN}$options = @{ DomainName = $given.directory; Credential = $credential; Force = $true; WarningAction = 'SilentlyContinue' }
if ($given.unit) { $options.OUPath = $given.unit }
if ($given.name -and $given.name -ne $env:COMPUTERNAME) { $options.NewName = $given.name }
Add-Computer @options
${READ_DOMAIN}`;

/** Leaves the directory as `login`, into a workgroup. */
export const LEAVE = `
$system = Get-CimInstance Win32_ComputerSystem
if (-not $system.PartOfDomain) { Answer @{ failed = 'none'; reason = 'it is in no directory' }; exit 1 }
$given | Add-Member -NotePropertyName directory -NotePropertyValue ([string]$system.Domain) -Force
${CREDENTIAL}
${CHECK_LOGIN}$former = $given.directory
Remove-Computer -UnjoinDomainCredential $credential -WorkgroupName WORKGROUP -Force -WarningAction SilentlyContinue
$system = Get-CimInstance Win32_ComputerSystem
Answer @{ former = $former; joined = [bool]$system.PartOfDomain; name = [string]$system.Name }
`;

/**
 * Runs Sysprep with the switches in `switches` and waits for its end. The answer file is the administrators' alone, and
 * gone when Sysprep is.
 */
export const SYSPREP = `
$system = Join-Path $env:WINDIR 'Sysnative'
if (-not (Test-Path $system)) { $system = Join-Path $env:WINDIR 'System32' }
$switches = @($given.switches -split ' ')
$file = $null
try {
  if ($given.unattend) {
    $directory = Join-Path $env:WINDIR ('Temp\\virtkeep-' + [guid]::NewGuid())
    [void](New-Item -ItemType Directory $directory)
    & icacls.exe $directory /inheritance:r /grant '*S-1-5-32-544:(OI)(CI)F' '*S-1-5-18:(OI)(CI)F' | Out-Null
    $file = Join-Path $directory 'unattend.xml'
    [IO.File]::WriteAllBytes($file, [Convert]::FromBase64String($given.unattend))
    $switches += "/unattend:$file"
  }
  $sysprep = Start-Process (Join-Path $system 'Sysprep\\sysprep.exe') -ArgumentList $switches -Wait -PassThru
} finally { if ($file) { Remove-Item -Recurse -Force (Split-Path $file) } }
$state = (Get-ItemProperty 'HKLM:\\SOFTWARE\\Microsoft\\Windows\\CurrentVersion\\Setup\\State').ImageState
Answer @{ code = [int]$sysprep.ExitCode; state = [string]$state }
`;
