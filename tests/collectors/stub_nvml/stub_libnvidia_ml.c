/* A stub of libnvidia-ml.so.1 for the tests: no driver, no GPU.
 *
 * $STUB_NVML names a text file of "key value" lines, read at each nvmlInit:
 *   init 18                  nvmlInit fails with that nvmlReturn_t
 *   count 4                  number of GPUs
 *   hang power               a system-wide call ("init", "count") that never returns
 *   0.power 129000           field "power" of GPU 0
 *   2.power.error 3          that call on GPU 2 fails with 3 (NotSupported)
 *   2.error 15               every call on GPU 2 but the identity fails with 15 (GPU is lost)
 *   1.hang temperature       that call on GPU 1 never returns
 *   1.processes 4711:1024,4712:-
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7 };

static struct { char key[64], value[128]; } lines[512];
static int line_count;
static struct device { int index; } devices[64];

static const char *lookup(const char *key)
{
    for (int i = 0; i < line_count; i++)
        if (strcmp(lines[i].key, key) == 0)
            return lines[i].value;
    return NULL;
}

static long long number(const char *key, long long otherwise)
{
    const char *text = lookup(key);
    return text ? strtoll(text, NULL, 0) : otherwise;
}

static const char *text_of(struct device *device, const char *field)
{
    char key[96];
    snprintf(key, sizeof key, "%d.%s", device->index, field);
    return lookup(key);
}

static long long value_of(struct device *device, const char *field, long long otherwise)
{
    const char *text = text_of(device, field);
    return text ? strtoll(text, NULL, 0) : otherwise;
}

static void hang_if(const char *text, const char *call)
{
    while (text && strcmp(text, call) == 0)
        pause();
}

/* What a call on this GPU returns before it looks at anything. */
static int enter(struct device *device, const char *call, int identity)
{
    char key[96];
    hang_if(text_of(device, "hang"), call);
    snprintf(key, sizeof key, "%s.error", call);
    long long error = value_of(device, key, OK);
    return error != OK || identity ? (int)error : (int)value_of(device, "error", OK);
}

static int copy(const char *text, char *out, unsigned length)
{
    if (strlen(text) + 1 > length)
        return TOO_SMALL;
    strcpy(out, text);
    return OK;
}

int nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    const char *path = getenv("STUB_NVML");
    FILE *file = path ? fopen(path, "r") : NULL;
    line_count = 0;
    while (file && line_count < 512 &&
           fscanf(file, " %63s %127[^\n]", lines[line_count].key, lines[line_count].value) == 2)
        line_count++;
    if (file)
        fclose(file);
    for (int i = 0; i < 64; i++)
        devices[i].index = i;
    hang_if(lookup("hang"), "init");
    return (int)number("init", OK);
}

int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return OK; }

const char *nvmlErrorString(int code)
{
    static char text[32];
    snprintf(text, sizeof text, "stub error %d", code);
    return text;
}

int nvmlSystemGetDriverVersion(char *out, unsigned length) { return copy("570.86.15", out, length); }
int nvmlSystemGetNVMLVersion(char *out, unsigned length) { return copy("12.570.86.15", out, length); }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = 12080; return OK; }

int nvmlDeviceGetCount_v2(unsigned *count)
{
    hang_if(lookup("hang"), "count");
    *count = (unsigned)number("count", 0);
    return (int)number("count.error", OK);
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct device **device)
{
    if (index >= number("count", 0))
        return INVALID_ARGUMENT;
    *device = &devices[index];
    return enter(*device, "handle", 1);
}

int nvmlDeviceGetUUID(struct device *device, char *out, unsigned length)
{
    char uuid[64];
    int error = enter(device, "uuid", 1);
    snprintf(uuid, sizeof uuid, "GPU-5a5a5a5a-0000-4000-8000-%012d", device->index);
    return error ? error : copy(uuid, out, length);
}

int nvmlDeviceGetName(struct device *device, char *out, unsigned length)
{
    int error = enter(device, "name", 1);
    return error ? error : copy("Stub H200", out, length);
}

int nvmlDeviceGetMinorNumber(struct device *device, unsigned *minor)
{
    *minor = (unsigned)value_of(device, "minor", device->index);
    return enter(device, "minor", 1);
}

struct pci_info {
    char short_id[16];
    unsigned domain, bus, device, ids, subsystem;
    char id[32];
};

int nvmlDeviceGetPciInfo_v3(struct device *device, struct pci_info *info)
{
    memset(info, 0, sizeof *info);
    info->bus = 0x19 + 0x10u * (unsigned)device->index;
    snprintf(info->id, sizeof info->id, "00000000:%02X:00.0", info->bus);
    snprintf(info->short_id, sizeof info->short_id, "0000:%02X:00.0", info->bus);
    return enter(device, "pci", 1);
}

#define SCALAR(function, field, type, otherwise)               \
    int function(struct device *device, type *out)             \
    {                                                          \
        *out = (type)value_of(device, field, otherwise);       \
        return enter(device, field, 0);                        \
    }

SCALAR(nvmlDeviceGetPowerUsage, "power", unsigned, 82000)
SCALAR(nvmlDeviceGetEnforcedPowerLimit, "power_limit", unsigned, 700000)
SCALAR(nvmlDeviceGetPerformanceState, "pstate", int, 0)
SCALAR(nvmlDeviceGetCurrentClocksThrottleReasons, "clock_reasons", unsigned long long, 1)
SCALAR(nvmlDeviceGetPersistenceMode, "persistence", int, 1)
SCALAR(nvmlDeviceGetComputeMode, "compute_mode", int, 0)
SCALAR(nvmlDeviceGetCurrPcieLinkGeneration, "pcie_generation", unsigned, 5)
SCALAR(nvmlDeviceGetMaxPcieLinkGeneration, "pcie_generation_max", unsigned, 5)
SCALAR(nvmlDeviceGetCurrPcieLinkWidth, "pcie_width", unsigned, 16)
SCALAR(nvmlDeviceGetMaxPcieLinkWidth, "pcie_width_max", unsigned, 16)
SCALAR(nvmlDeviceGetPcieReplayCounter, "pcie_replays", unsigned, 0)

int nvmlDeviceGetUtilizationRates(struct device *device, unsigned rates[2])
{
    rates[0] = (unsigned)value_of(device, "utilization", 0);
    rates[1] = (unsigned)value_of(device, "memory_utilization", 0);
    return enter(device, "utilization", 0);
}

int nvmlDeviceGetMemoryInfo(struct device *device, unsigned long long memory[3])
{
    memory[0] = 143771ULL << 20;
    memory[2] = (unsigned long long)value_of(device, "memory_used", 1 << 20);
    memory[1] = memory[0] - memory[2];
    return enter(device, "memory", 0);
}

int nvmlDeviceGetTemperature(struct device *device, int sensor, unsigned *celsius)
{
    (void)sensor;
    *celsius = (unsigned)value_of(device, "temperature", 31);
    return enter(device, "temperature", 0);
}

int nvmlDeviceGetClockInfo(struct device *device, int clock, unsigned *mhz)
{
    *mhz = clock == 1 ? (unsigned)value_of(device, "clock_sm", 1980) : 0;
    return enter(device, "clock", 0);
}

int nvmlDeviceGetMigMode(struct device *device, unsigned *current, unsigned *pending)
{
    *current = *pending = (unsigned)value_of(device, "mig", 0);
    return enter(device, "mig", 0);
}

int nvmlDeviceGetTotalEccErrors(struct device *device, int kind, int counter, unsigned long long *errors)
{
    *errors = (unsigned long long)value_of(device, counter ? "ecc_aggregate" : "ecc_volatile", 0);
    return kind == 1 ? enter(device, "ecc", 0) : NOT_SUPPORTED;
}

int nvmlDeviceGetRemappedRows(struct device *device, unsigned *correctable, unsigned *uncorrectable,
                              unsigned *pending, unsigned *failure)
{
    *correctable = *uncorrectable = *failure = 0;
    *pending = (unsigned)value_of(device, "remap_pending", 0);
    return enter(device, "remapped", 0);
}

struct process {
    unsigned pid;
    unsigned long long memory;
    unsigned instance, compute;
};

int nvmlDeviceGetComputeRunningProcesses_v3(struct device *device, unsigned *count, struct process *rows)
{
    int error = enter(device, "processes", 0);
    const char *text = text_of(device, "processes");
    unsigned room = *count, found = 0;
    if (error)
        return error;
    for (; text && *text; found++) {
        char *end;
        unsigned pid = (unsigned)strtoul(text, &end, 10);
        const char *memory = *end == ':' ? end + 1 : "-";
        if (rows && found < room) {
            rows[found].pid = pid;
            rows[found].memory = *memory == '-' ? ~0ULL : strtoull(memory, NULL, 10);
            rows[found].instance = rows[found].compute = ~0u;
        }
        text = strchr(end, ',');
        text = text ? text + 1 : NULL;
    }
    *count = found;
    return found && (!rows || found > room) ? TOO_SMALL : OK;
}

int nvmlDeviceGetNvLinkState(struct device *device, unsigned link, int *active)
{
    char field[32];
    int error = enter(device, "nvlink", 0);
    if (error)
        return error;
    if (link >= value_of(device, "links", 0))
        return value_of(device, "links", 0) ? INVALID_ARGUMENT : NOT_SUPPORTED;
    snprintf(field, sizeof field, "link%u", link);
    *active = (int)value_of(device, field, 1);
    return OK;
}

struct field_value {
    unsigned id, scope;
    long long timestamp, latency;
    int type, result;
    unsigned long long value;
};

int nvmlDeviceGetFieldValues(struct device *device, int count, struct field_value *values)
{
    int error = enter(device, "fields", 0);
    for (int i = 0; i < count; i++) {
        char field[32];
        snprintf(field, sizeof field, "field%u", values[i].id);
        values[i].result = text_of(device, field) ? OK : NOT_SUPPORTED;
        values[i].type = 1;
        values[i].value = (unsigned long long)value_of(device, field, 0);
    }
    return error;
}

struct fabric {
    unsigned version;
    unsigned char cluster[16];
    int status;
    unsigned clique;
    unsigned char state;
    unsigned health;
};

int nvmlDeviceGetGpuFabricInfoV(struct device *device, struct fabric *info)
{
    info->state = (unsigned char)value_of(device, "fabric_state", 3);
    info->status = OK;
    info->health = 0x6a;
    return enter(device, "fabric", 0);
}
