/**
 * Bounds what a program in a Windows guest can say, as posix-wrapper.ts does: PowerShell starts it, passes on the first
 * bytes of its streams, drops the rest and ends with its exit code. The script goes as -EncodedCommand, so nothing is quoted
 * twice; the program's command line is put together here, by the rules by which C programs take theirs apart.
 */
import type { OutputLimits } from './posix-wrapper.ts';

export interface WindowsProgram {
  path: string;
  args: readonly string[];
  /** "NAME=value" each; undefined: that of the agent's service. */
  env?: readonly string[] | undefined;
  /** Something comes on standard input. */
  hasInput: boolean;
}

export const POWERSHELL = 'powershell.exe';
/** CreateProcess takes 32 767 characters. */
export const MAX_COMMAND_LINE = 32_000;

/**
 * One argument of a command line, quoted so that the C run-time gives it back as it was. A row of backslashes is looked at from its
 * first one only: from each of them, a long row would take for ever.
 */
export function quoted(argument: string): string {
  if (argument !== '' && !/[\s"]/.test(argument)) return argument;
  const doubled = argument.replaceAll(/(?<!\\)\\+(?="|$)/g, '$&$&');
  return `"${doubled.replaceAll('"', '\\"')}"`;
}

const literal = (text: string): string => `'${text.replaceAll(/['\u2018\u2019\u201a\u201b]/g, '$&$&')}'`;

/** The arguments of {@link POWERSHELL} that run a program with its output bounded. */
export function windowsArguments(program: WindowsProgram, limits: OutputLimits): string[] {
  const script = scriptOf(program, limits);
  const encoded = Buffer.from(script, 'utf16le').toString('base64');
  return ['-NoLogo', '-NoProfile', '-NonInteractive', '-EncodedCommand', encoded];
}

function scriptOf({ path, args, env, hasInput }: WindowsProgram, { out, err, merged }: OutputLimits): string {
  const variables = (env ?? []).map(entry => {
    const end = entry.indexOf('=');
    return `$i.EnvironmentVariables[${literal(entry.slice(0, end))}]=${literal(entry.slice(end + 1))}`;
  });
  return [
    "$ErrorActionPreference='Stop'",
    '$i=New-Object Diagnostics.ProcessStartInfo',
    `$i.FileName=${literal(path)}`,
    `$i.Arguments=${literal(args.map(quoted).join(' '))}`,
    '$i.UseShellExecute=$false;$i.CreateNoWindow=$true',
    '$i.RedirectStandardInput=$true;$i.RedirectStandardOutput=$true;$i.RedirectStandardError=$true',
    ...(env ? ['$i.EnvironmentVariables.Clear()', ...variables] : []),
    'try{$p=[Diagnostics.Process]::Start($i)}catch{[Console]::Error.WriteLine($_.Exception.Message);exit 127}',
    `$o=[Console]::OpenStandardOutput();$e=${merged ? '$o' : '[Console]::OpenStandardError()'}`,
    'function tap($r,$w,$n){@{r=$r;w=$w;n=$n;b=(New-Object byte[] 65536);t=$null}}',
    `$s=@((tap $p.StandardOutput.BaseStream $o ${out}),(tap $p.StandardError.BaseStream $e ${merged ? out : err}))`,
    // a program that reads nothing must not hold its output back
    ...(hasInput
      ? ['$c=[Console]::OpenStandardInput().CopyToAsync($p.StandardInput.BaseStream)', '$f=$false']
      : ['$p.StandardInput.Close()', '$f=$true']),
    'while($s.Count){',
    'foreach($x in $s){if(!$x.t){$x.t=$x.r.ReadAsync($x.b,0,$x.b.Length)}}',
    '[void][Threading.Tasks.Task]::WaitAny([Threading.Tasks.Task[]]@($s|%{$_.t}),100)',
    'if(!$f -and $c.IsCompleted){$f=$true;try{$p.StandardInput.Close()}catch{}}',
    'foreach($x in @($s|?{$_.t.IsCompleted})){$k=$x.t.Result;$x.t=$null',
    'if($k -eq 0){$s=@($s|?{$_ -ne $x});continue}',
    '$k=[Math]::Min($k,$x.n);if($k -gt 0){$x.w.Write($x.b,0,$k);$x.w.Flush();$x.n-=$k}}}',
    '$p.WaitForExit();exit $p.ExitCode',
  ].join('\n');
}
