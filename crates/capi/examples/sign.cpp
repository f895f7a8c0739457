// One signature in C++: handles that free themselves, statuses that are exceptions; the devices, and zkDilithium.
#include <hypergrove.h>

#include <cstdint>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace {

void check(hg_status status)
{
    if (status != HG_OK)
        throw std::runtime_error(std::string(hg_status_text(status)) + ": " + hg_error_text());
}

template <auto free> struct Free {
    template <typename T> void operator()(T *handle) const { free(handle); }
};

using Engine = std::unique_ptr<hg_engine, Free<hg_engine_free>>;
using PrivateKey = std::unique_ptr<hg_private_key, Free<hg_private_key_free>>;
using PublicKey = std::unique_ptr<hg_public_key, Free<hg_public_key_free>>;

/// Calls a function whose last argument is where it puts a handle.
template <typename Handle, typename Function, typename... Arguments> Handle make(Function function, Arguments... arguments)
{
    typename Handle::pointer made = nullptr;
    check(function(arguments..., &made));
    return Handle(made);
}

void sign(const hg_engine *engine, const char *name, std::string_view message)
{
    hg_set set = 0;
    check(hg_set_by_name(name, &set));
    auto key = make<PrivateKey>(hg_private_key_generate, engine, set);
    auto public_key = make<PublicKey>(hg_public_key_of, key.get());
    auto bytes = reinterpret_cast<const std::uint8_t *>(message.data());
    std::vector<std::uint8_t> signature(hg_signature_size(set));
    check(hg_sign(engine, key.get(), nullptr, bytes, message.size(), signature.data(), signature.size()));
    check(hg_verify(engine, public_key.get(), nullptr, bytes, message.size(), signature.data(), signature.size()));
    std::cout << hg_set_name(set) << ": a valid signature of " << signature.size() << " bytes\n";
}

} // namespace

int main()
try {
    hg_engine_options options = HG_ENGINE_OPTIONS_INIT;
    const char *const devices[] = {"cpu:0"};
    options.devices = devices;
    options.device_count = 1;
    auto engine = make<Engine>(hg_engine_new, &options);

    std::size_t size = 0;
    check(hg_engine_devices(engine.get(), nullptr, 0, &size));
    std::string names(size, '\0');
    check(hg_engine_devices(engine.get(), names.data(), names.size(), &size));
    std::cout << "hypergrove " << hg_version() << " on " << names.c_str() << "\n";

    sign(engine.get(), "sha2-128f", "Dear reader");
    sign(engine.get(), "zkDilithium", "Dear reader");
    return 0;
} catch (const std::exception &error) {
    std::cerr << error.what() << "\n";
    return 2;
}
